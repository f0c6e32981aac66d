#!/usr/bin/env python3
"""Computes the flights example again, as a batch, with nothing of wasmill in it: the answer to compare with.

    recompute.py TABLE.csv[.gz]                    prints the expected records, sorted by aircraft and sequence
    recompute.py TABLE.csv[.gz] --against OUT...   compares them with the files (or folders of files) of a sink

Comparing exits with 1 where a record is missing, repeated or different. The record that the operator emits for an
aircraft's n-th flight holds its totals up to and including that flight, in the order of the file.
"""

import argparse
import csv
import gzip
import json
import pathlib
import sys

SHOWN = 10  # mismatches printed before the rest is only counted


def rows(table):
    """The table's rows as dictionaries; the text NA and the empty text both mean absent."""
    opener = gzip.open if table.suffix == ".gz" else open
    with opener(table, "rt", newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield {name: None if text in ("NA", "") else text for name, text in row.items()}


def expected(table):
    """The expected records by (aircraft, sequence), and what was counted on the way."""
    totals, records = {}, {}
    counted = {"rows": 0, "without_tailnum": 0, "without_arr_delay": 0}
    for row in rows(table):
        counted["rows"] += 1
        counted["without_tailnum"] += row["tailnum"] is None
        counted["without_arr_delay"] += row["arr_delay"] is None
        tailnum = row["tailnum"]
        if tailnum is None:
            continue
        flights, distance, last_seen, known, delay = totals.get(tailnum, (0, 0, "", 0, 0))
        flights += 1
        distance += int(row["distance"])
        last_seen = max(last_seen, row["time_hour"])
        if row["arr_delay"] is not None:
            known += 1
            delay += int(row["arr_delay"])
        totals[tailnum] = (flights, distance, last_seen, known, delay)
        records[tailnum, flights] = {
            "tailnum": tailnum,
            "flights": flights,
            "distance": distance,
            "last_seen": last_seen,
            "known_delays": known,
            "mean_arr_delay": delay / known if known else None,
        }
    return records, counted


def parts(place):
    """A sink's finished files: what is hidden is not finished."""
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(place).parts):
            yield file


def output(places):
    """The records in a sink's files, each with the file it stands in."""
    for place in map(pathlib.Path, places):
        for file in parts(place):
            for line in file.read_text(encoding="utf-8").splitlines():
                yield file, json.loads(line)


def compare(records, places):
    """The mismatches, as lines for a person."""
    seen = set()
    for file, record in output(places):
        name = record.get("tailnum"), record.get("flights")
        if name in seen:
            yield f"{file}: repeated: {record}"
        elif name not in records:
            yield f"{file}: not expected: {record}"
        elif record != records[name]:
            yield f"{file}: differs: {record}, expected {records[name]}"
        seen.add(name)
    for name in sorted(records.keys() - seen):
        yield f"missing: {records[name]}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("table", type=pathlib.Path)
    arguments.add_argument("--against", nargs="+", metavar="OUT")
    given = arguments.parse_args()
    records, counted = expected(given.table)
    if given.against is None:
        for name in sorted(records):
            print(json.dumps(records[name], separators=(",", ":")))
        return 0
    mismatches = list(compare(records, given.against))
    for line in mismatches[:SHOWN]:
        print(line)
    aircraft = len({tailnum for tailnum, _ in records})
    summary = {"aircraft": aircraft, "records": len(records), "mismatches": len(mismatches), **counted}
    print(json.dumps(summary))
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
