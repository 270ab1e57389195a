"""Adds an instance to the table of the example: ``python table.py DATABASE SERVICE ADDRESS:PORT [ZONE]``."""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing


def main() -> None:
    """Make the table if there is none, and add a row."""
    parser = argparse.ArgumentParser(description="Adds an instance to the table.")
    parser.add_argument("database")
    parser.add_argument("service")
    parser.add_argument("place", metavar="ADDRESS:PORT")
    parser.add_argument("zone", nargs="?", default="")
    given = parser.parse_args()
    address, _, port = given.place.rpartition(":")
    with closing(sqlite3.connect(given.database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS instances (service, address, port, weight, zone)")
        row = (given.service, address, int(port), 1, given.zone)
        connection.execute("INSERT INTO instances VALUES (?, ?, ?, ?, ?)", row)


if __name__ == "__main__":
    main()
