//! Runs the examples that a person watches, and does to them what that person would.

#![cfg(all(unix, feature = "full"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests say in one word that something went wrong, too")]

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};

#[test]
fn ctrl_c_ends_a_download_in_the_middle() {
    let mut download = start("download");
    let shown = read_until(&mut download, "MiB");
    // As the terminal does it.
    let interrupted = Command::new("sh").args(["-c", &format!("kill -INT {}", download.id())]).status();
    assert!(interrupted.unwrap().success());
    let rest = read_to_end(&mut download);
    assert!(download.wait().unwrap().success(), "it ends by itself");
    assert!(rest.ends_with("\ncancelled; the server has been told\n"), "{shown}{rest}");
    assert!(!rest.contains("64 MiB"), "{rest}");
}

/// Its policies have a limit of half a second, and the body takes three.
#[test]
fn a_download_is_not_cut_off_by_the_policies_that_its_headers_went_through() {
    let mut download = start("download");
    let shown = read_to_end(&mut download);
    assert!(download.wait().unwrap().success());
    assert!(shown.contains("64 MiB") && shown.ends_with("\n67108864 bytes\n"), "{shown}");
}

#[test]
fn the_breaker_of_one_host_leaves_another_alone() {
    let mut per_host = start("per_host");
    let shown = read_to_end(&mut per_host);
    assert!(per_host.wait().unwrap().success());
    // `300 ms` and, for each host, what came and the state of its breaker.
    let rows: Vec<Vec<_>> = shown.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 20, "{shown}");
    assert!(rows.iter().all(|row| row[2..4] == ["200", "closed"]), "{shown}");
    assert!(rows.iter().any(|row| row[4..] == ["refused", "open"]), "{shown}");
    assert_eq!(rows[19][4..], ["200", "closed"], "{shown}");
}

/// Starts an example, which `cargo test` has built already unless it was asked for one test alone.
fn start(name: &str) -> Child {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let build = ["build", "--quiet", "--locked", "--all-features", "--profile", profile, "--example", name];
    assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    let tests = env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    Command::new(built).stdout(Stdio::piped()).spawn().unwrap()
}

fn read_until(child: &mut Child, words: &str) -> String {
    let stdout = child.stdout.as_mut().unwrap();
    let (mut shown, mut byte) = (Vec::new(), [0]);
    while !shown.ends_with(words.as_bytes()) {
        stdout.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    String::from_utf8(shown).unwrap()
}

fn read_to_end(child: &mut Child) -> String {
    let mut shown = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut shown).unwrap();
    shown
}
