#!/usr/bin/env python3
"""Instructions for each call, counted by valgrind's callgrind: they do not depend on the mood of the machine.

    benches/peers/instructions.py             a table of all cases and subjects
    benches/peers/instructions.py breaker     of the cases whose name contains "breaker"
    benches/peers/instructions.py --check     compares steadfast with instructions.json; fails if a case has grown by over 3 %;
                                              with another rustc than that of the file it says so, and nothing else
    benches/peers/instructions.py --update    writes instructions.json anew

A reading of the clock counts as the few instructions that lead to the system call: under valgrind there is no vDSO.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).with_name("instructions.json")

# Every call of a case is like the others, so a mean over these is exact to the digit that is shown. Once through all keys.
CALLS = 10_000
MOST_GROWTH = 0.03
OURS = ("steadfast", "steadfast, fast clock", "steadfast, two steps", "steadfast, two steps, fast clock")


def main():
    arguments = sys.argv[1:]
    flags = {argument for argument in arguments if argument.startswith("--")}
    unknown = flags - {"--check", "--update"}
    if unknown:
        sys.exit(f"{', '.join(sorted(unknown))}: not known\n{__doc__}")
    part = next((argument for argument in arguments if not argument.startswith("--")), "")
    baseline = json.loads(BASELINE.read_text())
    if "--check" in flags and baseline["rustc"] != rustc():
        # Another compiler makes other code: nothing could be said about ours.
        print(f"not compared: the baseline was made with {baseline['rustc']}, this is {rustc()}")
        return
    program = build()
    pairs = [pair for pair in listed(program) if part in pair[0] and (not flags or pair[1] in OURS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(pairs, pool.map(lambda pair: count(program, *pair), pairs)))
    if "--check" in flags:
        check(counts, baseline["instructions"])
    elif "--update" in flags:
        update(counts)
    else:
        print(table(counts))


def build():
    """The program that `cargo bench` would run."""
    command = ["cargo", "bench", "--locked", "-p", "peers", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = map(json.loads, built.stdout.splitlines())
    programs = [message["executable"] for message in messages if message.get("executable")]
    if len(programs) != 1:
        sys.exit(f"one program was expected of {' '.join(command)}: {programs}")
    return programs[0]


def listed(program):
    lines = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return [tuple(line.split("\t")) for line in lines]


def count(program, case, subject):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=peers::harness::counted"]
    command += [program, "--count", case, subject, str(CALLS)]
    ran = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    collected = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode != 0 or not collected or collected.group(1) == "0":
        sys.exit(f"{case}, {subject}: callgrind has counted nothing\n{ran.stderr}")
    return round(int(collected.group(1)) / CALLS, 1)


def table(counts):
    cases = list(dict.fromkeys(case for case, _ in counts))
    subjects = list(dict.fromkeys(subject for _, subject in counts))
    shown = lambda case, subject: f"{counts[case, subject]:,.0f}" if (case, subject) in counts else ""
    rows = [["instructions a call", *cases], ["---"] + ["--:"] * len(cases)]
    rows += [[subject] + [shown(case, subject) for case in cases] for subject in subjects]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def update(counts):
    figures = {}
    for (case, subject), instructions in sorted(counts.items()):
        figures.setdefault(case, {})[subject] = instructions
    BASELINE.write_text(json.dumps({"rustc": rustc(), "instructions": figures}, indent=2) + "\n")
    print(f"{BASELINE.name}: {len(counts)} figures")


def check(counts, baseline):
    grown = []
    for (case, subject), now in counts.items():
        before = baseline.get(case, {}).get(subject)
        if before is None:
            grown.append(f"{case}, {subject}: {now} instructions a call, and no baseline")
            continue
        print(f"{case}, {subject}: {now} instructions a call, {before} in the baseline")
        if now > before * (1 + MOST_GROWTH):
            grown.append(f"{case}, {subject}: {before} instructions a call have become {now}")
    if grown:
        sys.exit("\n".join(grown) + f"\nmore than {MOST_GROWTH:.0%}: find out why, or --update with a reason in the commit")


def rustc():
    return subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


main()
