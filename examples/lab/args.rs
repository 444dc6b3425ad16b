//! The command line.

use std::path::PathBuf;

/// What was asked for, and where its files go.
pub(crate) struct Args {
    pub(crate) command: Command,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
}

pub(crate) enum Command {
    Help,
    /// One of them by its name, or `all`.
    Experiments {
        name: String,
        reduced: bool,
    },
    Tune {
        config: Option<PathBuf>,
        backend: PathBuf,
    },
}

/// The words of the line, each of which may be there once.
#[derive(Default)]
struct Words {
    command: Option<String>,
    help: bool,
    reduced: bool,
    /// Options with their values.
    values: Vec<(String, String)>,
}

impl Args {
    /// Reads what follows the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
        let mut words = Words::read(args)?;
        let seed = words.take("--seed").map_or(Ok(DEFAULT_SEED), |text| number(&text))?;
        let out = PathBuf::from(words.take("--out").unwrap_or_else(|| DEFAULT_OUT.to_owned()));
        let [config, backend] = ["--config", "--backend"].map(|option| words.take(option).map(PathBuf::from));
        let command = match words.command {
            _ if words.help => Command::Help,
            Some(tune) if tune == "tune" => {
                if words.reduced {
                    return Err("--reduced does not go with tune, whose size is in the file of the backend".to_owned());
                }
                let missing = "tune needs --backend FILE; --help shows what can be in it";
                Command::Tune { config, backend: backend.ok_or(missing)? }
            }
            name => {
                // Without a command it is the reduced set.
                let reduced = words.reduced || name.is_none();
                let name = name.unwrap_or_else(|| "all".to_owned());
                if config.is_some() || backend.is_some() {
                    return Err(format!("--config and --backend belong to tune, not to {name}"));
                }
                Command::Experiments { name, reduced }
            }
        };
        Ok(Args { command, seed, out })
    }
}

impl Words {
    fn read(args: impl IntoIterator<Item = String>) -> Result<Words, String> {
        let mut words = Words::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            // `--out DIR` and `--out=DIR`.
            let (option, attached) = match arg.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option.to_owned(), Some(value.to_owned())),
                _ => (arg.clone(), None),
            };
            match option.as_str() {
                "-h" | "--help" if attached.is_none() => words.help = true,
                "--reduced" if attached.is_none() && words.reduced => return Err("--reduced is there twice".to_owned()),
                "--reduced" if attached.is_none() => words.reduced = true,
                "--seed" | "--out" | "--config" | "--backend" => {
                    if words.values.iter().any(|(known, _)| *known == option) {
                        return Err(format!("{option} is there twice"));
                    }
                    let follows = |next: &String| !next.starts_with("--");
                    let value = attached.or_else(|| args.next().filter(follows));
                    let value = value.ok_or_else(|| format!("{option} needs a value"))?;
                    words.values.push((option, value));
                }
                _ if option.starts_with('-') => return Err(format!("unknown option {arg}; --help lists them")),
                _ => match &words.command {
                    None => words.command = Some(arg),
                    Some(command) => return Err(format!("one command at a time: {command} or {arg}?")),
                },
            }
        }
        Ok(words)
    }

    fn take(&mut self, option: &str) -> Option<String> {
        let at = self.values.iter().position(|(known, _)| known == option)?;
        Some(self.values.swap_remove(at).1)
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
        let reduced = |line| match parse(line).unwrap().command {
            Command::Experiments { name, reduced } => (name, reduced),
            Command::Help | Command::Tune { .. } => panic!("{line}: another command"),
        };
        assert_eq!(reduced(""), ("all".to_owned(), true));
        assert_eq!(reduced("all"), ("all".to_owned(), false));
        assert_eq!(parse("").unwrap().seed, DEFAULT_SEED);
    }

    #[test]
    fn values_follow_or_are_attached() {
        let args = parse("tune --seed 7 --out=a=b --config c --backend d").unwrap();
        assert_eq!((args.seed, args.out), (7, PathBuf::from("a=b")));
        let Command::Tune { config, backend } = args.command else { panic!("another command") };
        assert_eq!((config, backend), (Some(PathBuf::from("c")), PathBuf::from("d")));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |line| parse(line).err().unwrap_or_default();
        assert_eq!(refused("jitter --seeds 7"), "unknown option --seeds; --help lists them");
        assert_eq!(refused("jitter --reduced=yes"), "unknown option --reduced=yes; --help lists them");
        assert_eq!(refused("jitter --seed -1"), "--seed -1: must be a whole number from 0 to 18446744073709551615");
        assert_eq!(refused("jitter --out"), "--out needs a value");
        assert_eq!(refused("jitter --out --seed 1"), "--out needs a value");
        assert_eq!(refused("jitter --seed 1 --seed=2"), "--seed is there twice");
        assert_eq!(refused("jitter --reduced --reduced"), "--reduced is there twice");
        assert!(refused("tune --reduced --backend d").starts_with("--reduced does not go with tune"));
        assert_eq!(refused("jitter budget"), "one command at a time: jitter or budget?");
        assert!(refused("jitter --config c").contains("belong to tune"));
        assert!(refused("tune --config c").contains("needs --backend"));
    }
}
