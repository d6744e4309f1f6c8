"""The error of everything that stops a kernel's tests before they say anything."""

from __future__ import annotations


class CannotTest(Exception):
    """A kernel that cannot be tested, with what is missing and how to add it."""
