"""What is wrong with a body that is not as it should be, in one line."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """Where the first fault is and what it is; never the value, which may be anything."""
    fault = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "body"
    return f"{place}: {fault['msg']}"
