"""These tests make their files in memory."""

from tests.support.in_memory import tmp_path, tmp_path_factory  # noqa: F401
