#!/usr/bin/env python3
"""Makes input/flights.csv from the table of flights (examples/flights/fetch.py): three days in March 2013, in the order of departure.

The clocks of New York went forward on the second of them, a Sunday. A flight stands where it left; one that was cancelled, at the
end of its day. `scheduled` is when it should have left, in UTC.
"""

import csv
import datetime
import gzip
import pathlib

HERE = pathlib.Path(__file__).parent
TABLE = HERE.parent / "flights" / "data" / "flights.csv.gz"
DAYS = {("3", "9"), ("3", "10"), ("3", "11")}
WRITTEN = "%Y-%m-%dT%H:%M:%SZ"


def main():
    flights, day_ends = [], {}
    with gzip.open(TABLE, "rt", newline="") as table:
        for row in csv.DictReader(table):
            if (row["month"], row["day"]) not in DAYS:
                continue
            hour = datetime.datetime.strptime(row["time_hour"], WRITTEN)
            scheduled = hour + datetime.timedelta(minutes=int(row["minute"]))
            left = row["dep_delay"] != "NA" and scheduled + datetime.timedelta(minutes=int(row["dep_delay"]))
            flights.append((left, row["day"], [scheduled.strftime(WRITTEN), row["origin"], row["dest"], row["carrier"] + row["flight"]]))
            day_ends[row["day"]] = max(day_ends.get(row["day"], scheduled), scheduled)
    flights.sort(key=lambda flight: flight[0] or day_ends[flight[1]])
    (HERE / "input").mkdir(exist_ok=True)
    with open(HERE / "input" / "flights.csv", "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["scheduled", "origin", "dest", "flight"])
        writer.writerows(flight for _, _, flight in flights)
    print(f"{len(flights)} flights, {sum(not left for left, _, _ in flights)} of them cancelled")


if __name__ == "__main__":
    main()
