"""The content security policy of a page: it loads nothing and runs its own scripts only."""

from __future__ import annotations

import base64
import hashlib
import html
import re


def check_policy(page: str) -> None:
    """Asserts that a page needs nothing else, and that exactly its own scripts may run."""
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:|#)", page)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none';")
    (allowed,) = re.findall(r"script-src ([^;]*);", html.unescape(policy))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == page.count("<script>") > 1
    assert allowed.split() == [_hashed(script) for script in scripts]


def _hashed(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
