//! The command line.

use std::path::PathBuf;

/// What was asked for.
pub(crate) struct Args {
    pub(crate) command: String,
    pub(crate) reduced: bool,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
    pub(crate) config: Option<PathBuf>,
    pub(crate) backend: Option<PathBuf>,
    pub(crate) help: bool,
}

impl Args {
    /// Reads what follows the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
        let mut parsed = Args {
            command: String::new(),
            reduced: false,
            seed: DEFAULT_SEED,
            out: PathBuf::from(DEFAULT_OUT),
            config: None,
            backend: None,
            help: false,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            // `--out DIR` and `--out=DIR`.
            let (option, attached) = match arg.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option.to_owned(), Some(value.to_owned())),
                _ => (arg.clone(), None),
            };
            let mut value =
                || attached.clone().or_else(|| args.next()).ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "-h" | "--help" if attached.is_none() => parsed.help = true,
                "--reduced" if attached.is_none() => parsed.reduced = true,
                "--seed" => parsed.seed = number(&value()?)?,
                "--out" => parsed.out = PathBuf::from(value()?),
                "--config" => parsed.config = Some(PathBuf::from(value()?)),
                "--backend" => parsed.backend = Some(PathBuf::from(value()?)),
                _ if option.starts_with('-') => return Err(format!("unknown option {arg}; --help lists them")),
                _ if parsed.command.is_empty() => parsed.command = arg,
                _ => return Err(format!("one command at a time: {} or {arg}?", parsed.command)),
            }
        }
        if parsed.command.is_empty() {
            parsed.command = "all".to_owned();
            parsed.reduced = true;
        }
        parsed.check()?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), String> {
        let given = self.config.is_some() || self.backend.is_some();
        match self.command.as_str() {
            _ if self.help => Ok(()),
            "tune" if self.backend.is_none() => {
                Err("tune needs --backend FILE; --help shows what can be in it".to_owned())
            }
            "tune" => Ok(()),
            command if given => Err(format!("--config and --backend belong to tune, not to {command}")),
            _ => Ok(()),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("--seed {text}: must be a whole number from 0 to {}", u64::MAX))
}

pub(crate) const DEFAULT_SEED: u64 = 1;
pub(crate) const DEFAULT_OUT: &str = "target/lab";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_arguments_it_is_the_reduced_set() {
        let args = parse("").unwrap();
        assert_eq!((args.command.as_str(), args.reduced, args.seed), ("all", true, DEFAULT_SEED));
        assert!(!parse("all").unwrap().reduced);
    }

    #[test]
    fn values_follow_or_are_attached() {
        let args = parse("tune --seed 7 --out=a=b --config c --backend d").unwrap();
        assert_eq!((args.seed, args.out, args.config), (7, PathBuf::from("a=b"), Some(PathBuf::from("c"))));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |line| parse(line).err().unwrap_or_default();
        assert_eq!(refused("jitter --seeds 7"), "unknown option --seeds; --help lists them");
        assert_eq!(refused("jitter --reduced=yes"), "unknown option --reduced=yes; --help lists them");
        assert_eq!(refused("jitter --seed -1"), "--seed -1: must be a whole number from 0 to 18446744073709551615");
        assert_eq!(refused("jitter --out"), "--out needs a value");
        assert_eq!(refused("jitter budget"), "one command at a time: jitter or budget?");
        assert!(refused("jitter --config c").contains("belong to tune"));
        assert!(refused("tune --config c").contains("needs --backend"));
    }
}
