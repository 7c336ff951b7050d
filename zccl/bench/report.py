"""Results as a table for people, as CSV, or as JSON."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORMATS = ("table", "csv", "json")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    key : str
        Its name in rows, CSV and JSON, with the unit where there is one.
    title, unit : str
        Its two lines of heading in a table.
    form : str
        Format of its values in a table; text goes to the left, numbers to the right.
    width : int
        Characters of its values in a table, at least.
    detail : bool
        Whether tables leave it out.
    """

    key: str
    title: str
    unit: str = ""
    form: str = ""
    width: int = 0
    detail: bool = False

    def cell(self, value: Any, text: str | None = None) -> str:
        """Lay out a value, or a heading above such values."""
        width = max(self.width, len(self.title), len(self.unit))
        if text is None:
            missing = value is None or (isinstance(value, float) and not math.isfinite(value))
            text = "-" if missing else format(value, self.form)
        return text.ljust(width) if self.form == "s" else text.rjust(width)


class Report:
    """Writes rows to standard output.

    Parameters
    ----------
    name : str
        Of the benchmark.
    settings : mapping of str to value
        What the results depend on.
    columns : sequence of Column
        Of the rows. Rows need not have all of them.
    form : {"table", "csv", "json"}
        How to write.
    """

    def __init__(self, name: str, settings: Row, columns: Sequence[Column], form: str):
        self._name = name
        self._settings = settings
        self._columns = columns
        self._form = form
        self._rows: list[Row] = []
        self._summary: list[Row] = []
        if form == "table":
            print(f"# zccl bench {name}")
            for key, value in settings.items():
                print(f"#   {key:<12} {value}")
            self._head(columns)
        elif form == "csv":
            print(",".join(column.key for column in columns), flush=True)

    def add(self, row: Row) -> None:
        """Write a row; JSON is written at the end."""
        self._rows.append(row)
        if self._form == "table":
            self._line(self._columns, row)
        elif self._form == "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow([row.get(column.key) for column in self._columns])
            sys.stdout.flush()

    def finish(self, summary: Sequence[Row] = (), columns: Sequence[Column] = ()) -> None:
        """Write what follows from all rows (not in CSV, which has one kind of row)."""
        if self._form == "table" and summary:
            print("#")
            self._head(columns)
            for row in summary:
                self._line(columns, row)
        elif self._form == "json":
            content = {
                "benchmark": self._name,
                "settings": self._settings,
                "rows": [_plain(row) for row in self._rows],
                "summary": [_plain(row) for row in summary],
            }
            print(json.dumps(content, indent=1, default=str), flush=True)

    @staticmethod
    def _head(columns: Sequence[Column]) -> None:
        columns = [column for column in columns if not column.detail]
        print("# " + "  ".join(column.cell(None, column.title) for column in columns).rstrip())
        print("# " + "  ".join(column.cell(None, column.unit) for column in columns).rstrip())

    @staticmethod
    def _line(columns: Sequence[Column], row: Row) -> None:
        cells = "  ".join(c.cell(row.get(c.key)) for c in columns if not c.detail)
        print("  " + cells.rstrip(), flush=True)


def _plain(row: Row) -> dict[str, Any]:
    """JSON has no NaN and no infinities."""
    finite = {k: v for k, v in row.items() if not isinstance(v, float) or math.isfinite(v)}
    return {key: finite.get(key) for key in row}
