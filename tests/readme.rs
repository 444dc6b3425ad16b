//! Holds `README.md` to the code that it shows.

use std::fs;

#[test]
fn the_readme_shows_the_program_of_the_example() {
    let example = program(&read("examples/http.rs"));
    let readme = read("README.md");
    let shown: Vec<_> = blocks(&readme, "rust").iter().map(|block| program(block)).collect();
    assert_eq!(shown, [example]);
}

#[test]
fn the_program_has_twelve_lines_at_most() {
    let example = program(&read("examples/http.rs"));
    let lines = example.lines().filter(|line| !line.trim().is_empty()).count();
    assert!((1..=12).contains(&lines), "{lines} lines:\n{example}");
}

#[test]
fn the_readme_gives_the_two_commands_on_lines_of_their_own() {
    let readme = read("README.md");
    let commands: Vec<_> = blocks(&readme, "sh").into_iter().map(str::trim_end).collect();
    assert_eq!(commands, ["cargo run --release --features full --example outage", "cargo test --all-features"]);
}

#[test]
fn the_readme_names_the_rust_version_of_the_manifest() {
    let manifest = read("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.expect("the manifest has a rust-version").trim_matches('"');
    assert!(read("README.md").contains(&format!("Rust {version} or later")), "not {version}");
}

#[test]
fn what_the_readme_links_to_is_there() {
    let readme = read("README.md");
    let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local: Vec<_> = targets.filter(|target| !target.starts_with("http") && !target.starts_with('#')).collect();
    assert!(local.contains(&"docs/outage.svg"), "{local:?}");
    for target in local {
        assert!(fs::exists(target).unwrap(), "{target} is missing");
    }
}

/// Without the comments: the text of a program as far as the compiler reads it, blank lines included between the others.
fn program(text: &str) -> String {
    let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    code.join("\n").trim().to_owned()
}

/// The fenced blocks in this language.
fn blocks<'a>(markdown: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    markdown.split(&open).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Cargo runs tests in the folder of the manifest.
fn read(path: &str) -> String {
    fs::read_to_string(path).expect("it is a text file of this repository")
}
