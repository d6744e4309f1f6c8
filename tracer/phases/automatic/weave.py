"""Inserts calls into the code of another library's function without adding a stack frame.

A wrapper around a function is visible: in every traceback through it, in the stack level of
warnings, and to `is` and pickle. Calls inserted into the function's own code, at its own lines
and columns, are not visible.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_ENTERED = "__tracer_entered"
_COMPARED = ("co_names", "co_varnames", "co_freevars", "co_flags")


class NotWoven(Exception):
    """The function does not allow calls to be inserted."""


def weave(
    function: Callable[..., Any],
    enter: Callable[..., bool],
    leave: Callable[[], None] | None = None,
    stopped: Callable[[], None] | None = None,
    given: Sequence[str] = (),
) -> None:
    """Makes each call of `function` call `enter` first and, if `enter` returns true, `leave` last.

    `enter` receives the function's parameters named in `given`. `leave` is called however the
    function ends; `stopped` is called if StopIteration leaves the function. None of them may raise.

    Raises NotWoven, and changes nothing, if the source of the function is missing or does not
    match its compiled code.
    """
    if not isinstance(function, FunctionType):
        raise NotWoven(f"{function!r} is not a Python function")
    code = function.__code__
    if code.co_freevars or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        raise NotWoven(f"{code.co_name} is a closure or a generator")
    tree, definition = _parsed(function)
    plain = _compiled(tree, function)
    # The instructions of method calls depend on the file's imports, so compare other attributes.
    same = all(getattr(plain, name) == getattr(code, name) for name in _COMPARED)
    if not same or _lines(plain) != _lines(code):
        raise NotWoven(f"{code.co_name} does not match its source")
    name = f"__tracer_{code.co_name}_{code.co_firstlineno}"
    calls = {f"{name}_enter": enter, f"{name}_leave": leave, f"{name}_stopped": stopped}
    entered = ast.Call(_name(f"{name}_enter"), [_name(local) for local in given], [])
    begin: ast.stmt = ast.Assign([ast.Name(_ENTERED, ast.Store())], entered)
    if leave is None:
        definition.body = [begin, *definition.body]
    else:
        leaving = ast.If(_name(_ENTERED), [_call(f"{name}_leave")], [])
        stopping = ast.ExceptHandler(
            _name("StopIteration"), None, [_call(f"{name}_stopped"), ast.Raise()]
        )
        handlers = [] if stopped is None else [stopping]
        definition.body = [begin, ast.Try(definition.body, handlers, [], [leaving])]
    woven = _compiled(_located(tree, definition), function)
    function.__globals__.update(calls)
    function.__code__ = woven


def _lines(code: CodeType) -> set[int | None]:
    return {line for _, _, line in code.co_lines()}


def _parsed(function: FunctionType) -> tuple[ast.Module, ast.FunctionDef]:
    """Returns the function's definition, with the lines and columns that it has in its file."""
    try:
        lines, first = inspect.getsourcelines(function)
        source = "".join(lines)
        if source[:1].isspace():
            source, first = "if True:\n" + source, first - 1
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise NotWoven(f"{function.__name__}: {error}") from None
    (statement,) = tree.body
    if isinstance(statement, ast.If):
        (statement,) = statement.body
    if not isinstance(statement, ast.FunctionDef) or statement.decorator_list:
        raise NotWoven(f"{function.__name__} is decorated or not a function")
    tree.body = [statement]
    return ast.increment_lineno(tree, first - 1), statement


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str) -> ast.Expr:
    return ast.Expr(ast.Call(_name(name), [], []))


def _located(tree: ast.Module, definition: ast.FunctionDef) -> ast.Module:
    """Places the inserted nodes on the line of the definition."""
    for node in ast.walk(definition):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, definition)
    return tree


def _compiled(tree: ast.Module, function: FunctionType) -> CodeType:
    code = function.__code__
    flags = code.co_flags & _FUTURES
    module = compile(tree, code.co_filename, "exec", flags=flags, dont_inherit=True)
    (found,) = (
        constant
        for constant in module.co_consts
        if isinstance(constant, CodeType) and constant.co_name == code.co_name
    )
    if hasattr(code, "co_qualname"):
        found = found.replace(co_qualname=code.co_qualname)
    return found
