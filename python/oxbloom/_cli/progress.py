"""Progress bars, if standard error is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oxbloom._types import Progress

Bar = Any  # a tqdm, which has no type annotations


def bar(total: int | None, *, what: str = "", hidden: bool = False) -> Bar:
    """Returns a progress bar for bytes."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=what or None,
        unit="B",
        unit_scale=True,
        leave=False,
        disable=True if hidden else None,  # None disables it unless standard error is a terminal
    )


@contextmanager
def reported(what: str) -> Iterator[Progress]:
    """Shows the progress of save_to and load_from."""
    with bar(None, what=what) as shown:

        def update(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield update
