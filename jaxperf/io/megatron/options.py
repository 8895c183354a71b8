"""The options in a text of Megatron-style arguments or a shell script that sets them: names and their values.

Comments and line continuations go; a variable that the text sets to one value is put in, `${NAME:-default}` and
`$((...))` of integers too. Options in a variable or array are read where it is set. What cannot be known without
running the script stays as it is, and is refused only where it is needed. Options may be keys of a YAML file too.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from pathlib import Path

from hwspecs.errors import InputError

Options = dict[str, list[str]]  # name without dashes, underscores for dashes -> its values

_ASSIGNMENT = re.compile(
    r"""(?:^|[\s;])(?:export\s+|local\s+)?([A-Za-z_]\w*)\+?=
    (\((?:[^()]|\$\(\([^()]*\)\))*\) | "[^"]*" | '[^']*' | \$\(\([^()]*\)\) | \S*)""",
    re.X,
)
_VARIABLE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$(\w+)")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
_NAME = re.compile(r"\b[A-Za-z_]\w*")
# Signs of the shell, with the stream that goes to a file or another stream (2>&1), and what is between them.
_WORD = re.compile(r"\d?>[>&]*\d?|[;|&<>()]+|[^\s;|&<>()]+")
_SIGNS = frozenset(";|&<>()")
_PROGRAM = re.compile(r".*\.py|-[A-Za-z]")  # what a launcher runs, after its own options: a script, or -m and a module
_BACKSLASH = "\\"
_QUOTES = "\"'"
# A list by layer, as of moe-layer-freq, whose parentheses are none of the shell.
_LIST = re.compile(r"""(["']?)\((\[[\[\]\d*+,\s]+)\)\1""")
# A drawn pipeline, whose bars and parentheses are none of the shell either.
_DRAWN = re.compile(r"""(--pipeline[-_]model[-_]parallel[-_]layout)(?:=|\s+)(["']?)([EtmL*\d|()\\,]+)\2""")
# An option as the key of a YAML file, as in Megatron's model zoo of experts.
_KEY = re.compile(r"^[ \t]*(--[\w-]+):(?:[ \t]+([^\n]*?))?[ \t\r]*$", re.M)
_COMMENT = re.compile(r"(^|\s)#[^\n]*")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # the shell divides integers
}
_DEPTH = 20  # variables within variables


def read_options(path: str | Path, matters: Callable[[str], bool] = bool) -> Options:
    """The options of a file. Raises `InputError` as `parse_options` does, and for a file that cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {reason}.") from None
    return parse_options(text, str(path), matters)


def parse_options(text: str, source: str, matters: Callable[[str], bool] = bool) -> Options:
    """The options of a text.

    **Arguments:** `matters`: whether the value of an option does; of others that are given twice, as in two branches
    of a script, the first is taken.
    **Raises:** `InputError` naming the option for one that matters and is given twice with different values, and for a
    text without options.
    """
    text = _COMMENT.sub(r"\1", text.replace("\\\r\n", " ").replace("\\\n", " "))
    text = _KEY.sub(_as_option, text)
    text = _DRAWN.sub(_as_word, _LIST.sub(lambda match: "".join(match[2].split()), text))
    variables = _variables(text)
    words = _WORD.findall(_DRAWN.sub(_as_word, _expand(_ASSIGNMENT.sub(_options_set, text), variables)))
    found: Options = {}
    for name, values in _options([word.strip(_QUOTES) for word in words]):
        if found.setdefault(name, values) != values and matters(name):
            raise InputError(f"{source}: --{_dashed(name)} is given twice: {_shown(found[name])} and {_shown(values)}.")
    if not found:
        raise InputError(f"{source} holds no option such as --num-layers 96.")
    return found


def _as_option(match: re.Match[str]) -> str:
    """The option of a key of a YAML file; nothing where that says that it is not set."""
    word = (match[2] or "").strip(_QUOTES).lower()
    if word == "false":
        return " ; "
    return f"{match[1]} ; " if word == "true" else f"{match[1]} {match[2] or ''} ; "


def _as_word(match: re.Match[str]) -> str:
    """A drawn pipeline with slashes for its bars, and brackets."""
    return f"{match[1]} {match[3].translate(str.maketrans('|()', '/[]', _BACKSLASH))}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _shown(values: list[str]) -> str:
    return " ".join(values) or "set"


def _variables(text: str) -> dict[str, str]:
    """What the text sets: options to nothing, because they are read where they are set; two values are none."""
    found: dict[str, set[str]] = {}
    for name, value in _ASSIGNMENT.findall(text):
        found.setdefault(name, set()).add("" if "--" in value else value.strip(_QUOTES))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _options_set(match: re.Match[str]) -> str:
    """The options in an assignment, apart from what stands around it; nothing in place of any other."""
    value = match.group(2).strip("()" + _QUOTES)
    return f" ; {value} ; " if "--" in value else " "


def _expand(text: str, variables: dict[str, str]) -> str:
    """The text with the variables put in; those that are not set stay."""

    def put(match: re.Match[str]) -> str:
        name, default = match.group(1) or match.group(3), match.group(2)
        value = variables.get(name)
        return match.group(0) if value is None and default is None else default if value is None else value

    def calculate(match: re.Match[str]) -> str:
        return _calculated(_NAME.sub(lambda name: variables.get(name.group(), name.group()), match.group(1)))

    for _ in range(_DEPTH):
        larger = _ARITHMETIC.sub(calculate, _VARIABLE.sub(put, text))
        if larger == text or len(larger) > 10**6:
            break
        text = larger
    return text


def _calculated(formula: str) -> str:
    """The value of `$((formula))`, or that text where it is no formula of integers (yet)."""
    try:
        return str(_value(ast.parse(formula.strip(), mode="eval").body))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return f"$(({formula}))"


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError


def _options(words: list[str]) -> list[tuple[str, list[str]]]:
    """(name, values) of each option, in order; its values reach to the next option, the program that a launcher starts
    or the end of the command."""
    found: list[tuple[str, list[str]]] = []
    open_option = False
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, sign, value = word[2:].partition("=")
            found.append((name.replace("-", "_"), [value] if sign else []))
            open_option = not sign
        elif not word or set(word) & _SIGNS or _PROGRAM.fullmatch(word):
            open_option = False
        elif open_option:
            found[-1][1].append(word)
    return found
