"""Provides the CPU with one thread, as which everything here is measured and served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from calibrate.device import Device


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    from tests.engine_fixtures import one_thread

    with one_thread() as found:
        yield found
