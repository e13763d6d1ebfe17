"""Formats numbers and names for users."""

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def shown(name: bytes) -> str:
    """Returns a file's name or a key, in quotes."""
    return repr(name.decode(errors="backslashreplace"))


def size(number: int) -> str:
    """Returns a number of bytes, in a suitable unit."""
    value, index = float(number), 0
    while value >= 999.5 and index < len(UNITS) - 1:
        value, index = value / 1000, index + 1
    if index == 0:
        return f"{number} bytes"
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {UNITS[index]}"


def table(rows: list[list[str]], numbers: frozenset[int] = frozenset()) -> str:
    """Returns rows as aligned columns. The columns in `numbers` are aligned on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)
