#!/usr/bin/env python3
"""Makes sample.csv.gz from data/flights.csv.gz: every flight of every 10th aircraft, and every 10th without a tail number.

The sample is committed, for the tests. Its aircraft are complete, so their totals equal those of the whole table.
"""

import gzip
import pathlib

HERE = pathlib.Path(__file__).parent
EVERY = 10


def main():
    with gzip.open(HERE / "data" / "flights.csv.gz", "rt", newline="") as table:
        header, *lines = table.read().splitlines()
    column = header.split(",").index("tailnum")
    aircraft = sorted({line.split(",")[column] for line in lines} - {"NA"})
    chosen = set(aircraft[::EVERY])
    kept, unnamed = [header], 0
    for line in lines:
        tailnum = line.split(",")[column]
        if tailnum == "NA":
            unnamed += 1
        if tailnum in chosen or (tailnum == "NA" and unnamed % EVERY == 0):
            kept.append(line)
    with open(HERE / "sample.csv.gz", "wb") as out:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed:
            packed.write(("\n".join(kept) + "\n").encode())
    print(f"{len(kept) - 1} rows of {len(chosen)} aircraft")


if __name__ == "__main__":
    main()
