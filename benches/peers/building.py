#!/usr/bin/env python3
"""What it costs to build a program around each crate: a clean release build of a small program that uses it, two jobs,
sources already fetched. Prints a Markdown table: crates in the tree, seconds, size of the stripped program.

    benches/peers/building.py            all of them, some two minutes on two cores that do nothing else
    benches/peers/building.py NAME..     these alone
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCK = (ROOT / "Cargo.lock").read_text()
TOKIO = 'tokio = { version = "1", features = ["rt", "time", "macros"] }'

# Name, dependencies beside tokio (VERSION is that of the lock file), and what the program awaits.
PROGRAMS = [
    ("tokio alone", "", 'tokio::time::timeout(LIMIT, call()).await.ok().is_some()'),
    ("steadfast", f'steadfast = {{ path = "{ROOT}" }}',
     '{ use steadfast::*; let e = Executor::builder("a").policies((Retry::exponential(), Breaker::default(), '
     'Timeout::new(LIMIT))).build().unwrap(); e.run(|_| call()).await.is_ok() }'),
    ("failsafe", 'failsafe = "VERSION"',
     '{ use failsafe::futures::CircuitBreaker; failsafe::Config::new().build().call(call()).await.is_ok() }'),
    ("recloser", 'recloser = "VERSION"',
     '{ use recloser::{AsyncRecloser, Recloser}; AsyncRecloser::from(Recloser::default()).call(call()).await.is_ok() }'),
    ("backon", 'backon = { version = "VERSION", default-features = false, features = ["std", "tokio-sleep"] }',
     '{ use backon::Retryable; call.retry(backon::ExponentialBuilder::default()).await.is_ok() }'),
    ("tokio-retry2", 'tokio-retry2 = "VERSION"',
     '{ let waits = tokio_retry2::strategy::ExponentialBackoff::from_millis(10).take(3); '
     'tokio_retry2::Retry::spawn(waits, || async { call().await.map_err(tokio_retry2::RetryError::transient) }).await.is_ok() }'),
    ("governor", 'governor = { version = "VERSION", default-features = false, features = ["std", "quanta", "dashmap"] }',
     '{ let quota = governor::Quota::per_second(10.try_into().unwrap()); '
     'governor::RateLimiter::direct(quota).check().is_ok() && call().await.is_ok() }'),
    # Not called: what takes time is to build them.
    ("seatbelt", 'seatbelt = { version = "VERSION", features = ["breaker", "retry", "timeout"] }', "call().await.is_ok()"),
    ("tower", 'tower = { version = "VERSION", features = ["limit", "retry", "timeout", "util"] }', "call().await.is_ok()"),
    ("tower-resilience", 'tower-resilience = { version = "VERSION", features = ["circuitbreaker", "retry", "timelimiter"] }',
     "call().await.is_ok()"),
    ("backon, failsafe and governor",
     'backon = { version = "VERSION", default-features = false, features = ["std", "tokio-sleep"] }\n'
     'failsafe = "VERSION"\n'
     'governor = { version = "VERSION", default-features = false, features = ["std", "quanta", "dashmap"] }',
     '{ use backon::Retryable; use failsafe::futures::CircuitBreaker; let breaker = failsafe::Config::new().build(); '
     'let quota = governor::Quota::per_second(10.try_into().unwrap()); let limiter = governor::RateLimiter::direct(quota); '
     'limiter.check().is_ok() && (|| breaker.call(call())).retry(backon::ExponentialBuilder::default()).await.is_ok() }'),
]


def main():
    wanted = sys.argv[1:]
    print("| program | crates in its tree | clean build, s | program, KiB |")
    print("|---|--:|--:|--:|")
    for name, dependencies, expression in PROGRAMS:
        if not wanted or name in wanted:
            print("| {} | {} | {:.1f} | {} |".format(name, *measure(dependencies, expression)), flush=True)


def measure(dependencies, expression):
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        write(folder, dependencies, expression)
        cargo(folder, "fetch", "--locked")
        begun = time.monotonic()
        cargo(folder, "build", "--release", "--jobs", "2", "--locked")
        took = time.monotonic() - begun
        tree = cargo(folder, "tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe")
        crates = {line.split(" (")[0] for line in tree.splitlines() if line} - {"program v0.0.0"}
        size = (folder / "target/release/program").stat().st_size // 1024
        return len(crates), took, size
    finally:
        shutil.rmtree(folder)


def write(folder, dependencies, expression):
    (folder / "src").mkdir()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "program"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n'
        f'[dependencies]\n{TOKIO}\n{pinned(dependencies)}\n\n[profile.release]\nstrip = true\n')
    (folder / "src/main.rs").write_text(
        'const LIMIT: std::time::Duration = std::time::Duration::from_secs(1);\n'
        'async fn call() -> Result<u64, std::io::Error> { Ok(7) }\n'
        '#[tokio::main(flavor = "current_thread")]\nasync fn main() {\n    let _ = (LIMIT, call);\n'
        f'    println!("{{}}", {expression});\n}}\n')
    # The versions that are measured beside it: what the lock file does not need is left out by cargo.
    shutil.copy(ROOT / "Cargo.lock", folder / "Cargo.lock")
    cargo(folder, "update", "--workspace", "--offline")


def pinned(dependencies):
    lines = []
    for line in dependencies.splitlines():
        name = line.split(" ")[0]
        found = re.search(rf'name = "{name}"\nversion = "([^"]+)"', LOCK)
        lines.append(line.replace("VERSION", "=" + found[1]) if found else line)
    return "\n".join(lines)


def cargo(folder, *arguments):
    environment = {"CARGO_TARGET_DIR": str(folder / "target"), "CARGO_INCREMENTAL": "0"}
    done = subprocess.run(["cargo", *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cargo {' '.join(arguments)}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
