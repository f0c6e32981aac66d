#!/usr/bin/env python3
"""The demo: streams the flights, shows what came out, then kills the job half-way and shows that nothing is lost.

    demo.py --wasmill PATH     (`make demo` builds, fetches the table and runs this)

Everything it writes lies in `run/` beside this file and is made anew each time.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import recompute

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "data" / "flights.csv.gz"
RUN = HERE / "run"
RATE = 45_000  # records a second of the job that is killed: it lasts some seven seconds
AIRCRAFT = re.compile(rb'"tailnum":"([^"]*)"')
SEQUENCE = re.compile(rb'"flights":(\d+)')
PATIENCE = 120  # seconds after which a run is given up


def say(text=""):
    print(text, flush=True)


def variant(name, **changes):
    """The example's pipeline file with folders of its own, and other values where `changes` says so."""
    text = (HERE / "pipeline.toml").read_text()
    for old, new in (
        ('"data/', f'"{HERE}/data/'),
        ('component = "', f'component = "{HERE}/'),
        ('"./run/', f'"{RUN}/{name}/'),
        ('"run/', f'"{RUN}/{name}/'),
        ("[source.flights]\n", "[source.flights]\n" + "".join(f"{key} = {value}\n" for key, value in changes.items())),
    ):
        if old not in text:
            sys.exit(f"error: pipeline.toml has no {old.strip()} to vary")
        text = text.replace(old, new)
    folder = RUN / name
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(text)
    return folder


def start(wasmill, folder):
    """A running job whose log goes to `log` in its folder."""
    log = open(folder / "log", "a")
    return subprocess.Popen([wasmill, "run", folder / "pipeline.toml"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def finish(job, folder):
    """Waits for a job's end and stops the demo where it failed."""
    try:
        code = job.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        job.kill()
        code = f"none after {PATIENCE} s"
    if code != 0:
        sys.exit(f"error: the job failed (exit code {code}); the end of {folder}/log:\n{(folder / 'log').read_text()[-2000:]}")


def visible(folder):
    """The bytes of output that anyone can see by now."""
    return sum(file.stat().st_size for file in recompute.parts(folder / "out"))


def lines(folder):
    """All output lines as they stand in the files."""
    return [line for file in recompute.parts(folder / "out") for line in file.read_bytes().splitlines()]


def aircraft_and_sequence(line):
    """What output is sorted by, without parsing all of it."""
    return AIRCRAFT.search(line)[1], int(SEQUENCE.search(line)[1])


def show_totals(output):
    """The aircraft that flew most; `output` is sorted."""
    last = [json.loads(line) for line in {aircraft_and_sequence(line)[0]: line for line in output}.values()]
    say(f"\n  {'aircraft':<10}{'flights':>9}{'miles':>12}{'mean delay':>12}  last seen")
    for record in sorted(last, key=lambda record: -record["flights"])[:5]:
        delay = "-" if record["mean_arr_delay"] is None else f"{record['mean_arr_delay']:.1f} min"
        say(f"  {record['tailnum']:<10}{record['flights']:>9,}{record['distance']:>12,}{delay:>12}  {record['last_seen']}")
    say(f"  ... and {len(last) - 5:,} more\n")


def show(wasmill, command, folder):
    """What `wasmill COMMAND` says of the job, in its own words."""
    said = subprocess.run([wasmill, *command, folder / "pipeline.toml"], capture_output=True, text=True)
    if said.returncode != 0:
        sys.exit(f"error: wasmill {' '.join(command)} failed:\n{said.stderr}")
    for line in said.stdout.splitlines():
        say(f"  | {line}")


def kill_half_way(wasmill, folder):
    """Runs the job, kills it at a random moment after a completed checkpoint, and starts it again."""
    job = start(wasmill, folder)
    begun = time.monotonic()
    while not visible(folder):
        if job.poll() is not None or time.monotonic() - begun > PATIENCE:
            finish(job, folder)
            sys.exit("error: the job ended before it could be killed")
        time.sleep(0.01)
    time.sleep(random.uniform(0.5, 3.0))
    show(wasmill, ["status"], folder)
    if job.poll() is not None:
        finish(job, folder)
        sys.exit("error: the job ended before it could be killed")
    job.send_signal(signal.SIGKILL)
    job.wait()
    seen = len(lines(folder))
    say(f"\n  killed with SIGKILL {time.monotonic() - begun:.1f} s in; {seen:,} records were visible; started again")
    job = start(wasmill, folder)
    finish(job, folder)
    return seen


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--wasmill", required=True, type=pathlib.Path)
    wasmill = arguments.parse_args().wasmill.resolve()
    shutil.rmtree(RUN, ignore_errors=True)

    say("1. 336,776 flights through a WebAssembly operator, its state kept per aircraft, a checkpoint every 500 ms")
    whole = variant("whole")
    begun = time.monotonic()
    finish(start(wasmill, whole), whole)
    took = time.monotonic() - begun
    uninterrupted = sorted(lines(whole), key=aircraft_and_sequence)
    say(f"  done in {took:.1f} s: {len(uninterrupted):,} records out")
    show_totals(uninterrupted)
    say(f"  {(whole / 'log').read_text().splitlines()[-1].split('INFO')[-1].strip()}\n")
    show(wasmill, ["checkpoints", "list"], whole)

    say("\n2. The same computed by plain Python")
    records, counted = recompute.expected(TABLE)
    mismatches = list(recompute.compare(records, [whole / "out"]))
    say(f"  {len(mismatches)} of {len(records):,} records differ; without a tail number, dropped: {counted['without_tailnum']:,}")

    say(f"\n3. Again at {RATE:,} flights a second, killed half-way; shortly before:")
    killed = variant("killed", rate=RATE)
    before = kill_half_way(wasmill, killed)
    resumed = sorted(lines(killed), key=aircraft_and_sequence)
    same = resumed == uninterrupted
    say(f"  {len(resumed):,} records out ({before:,} before the kill, {len(resumed) - before:,} after)")
    say(f"  the output {'equals' if same else 'DIFFERS FROM'} the uninterrupted run's, byte for byte after sorting")

    known = (counted["rows"], counted["without_tailnum"], counted["without_arr_delay"]) == (336_776, 2_512, 9_430)
    for line in mismatches[: recompute.SHOWN]:
        say(f"  {line}")
    if mismatches or not same or not known:
        sys.exit("error: the outputs are not what they must be")


if __name__ == "__main__":
    main()
