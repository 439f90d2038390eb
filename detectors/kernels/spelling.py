"""Reading a C++ name as profilers print it: brackets become a tree, and the tree is written again in one way.

A kernel's name nests templates in functions in lambdas in templates. Every rule here is about one kind of bracket, so
that a name of any shape is read once, from left to right.
"""

import re
from dataclasses import dataclass, field

MAX_DEPTH = 60
"""Brackets in brackets. The deepest name seen has 17; a deeper one than this stays as it is spelled."""

_TOKEN = re.compile(
    r"""
      \s+
    | operator\s*(?:\(\s*\)|\[\s*\]|<<|>>|<=|>=|->|==|[<>+\-*/%&|^!=~]) # brackets that bracket nothing
    | \(anonymous\ namespace\) | <unnamed> | \{anonymous\} | _GLOBAL__N_\w*
    | decltype\s*\(\s*nullptr\s*\)
    | [^\W\d][\w$]*                                                    # a word
    | \d\w*                                                            # a number, with its suffix
    | :: | -> | .
    """,
    re.VERBOSE | re.DOTALL,
)
_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_\w*")
_VERSION_NAMESPACE = re.compile(r"(?:CUB|THRUST|ROCPRIM|HIPCUB|CCCL)_\w*NS|at_cuda_detail|__1|__cxx11|__2")
"""Inline namespaces that tell the release of a library, or who bundles it."""

_LEFT_OUT_BEGIN = frozenset("(<{_CTRHa")
"""What names of either begin with: most words need not be held against them."""

_QUALIFIERS = frozenset({"const", "volatile"})
_FUNDAMENTAL = re.compile(
    r"(?:(?:bool|char|short|int|long|unsigned|signed|float|double|u?int(?:8|16|32|64)_t|size_t) ?)+"
)
_CLOSES = {")": "(", ">": "<", "]": "[", "}": "{"}
_CLOSERS = {opener: closer for closer, opener in _CLOSES.items()}
_RENAMED = {"at::detail::Array": "std::array"}
"""Names that one type had in other releases."""

_NUMBER = re.compile(r"(\d+)[uUlL]+")


@dataclass(slots=True)
class _Group:
    """What stands between two brackets: words and signs, and more groups."""

    opener: str
    parts: "list[str | _Group]" = field(default_factory=list)
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Spelling:
    """A name in the one spelling. `whole`: of a cut name, all that counts stood before the cut."""

    key: str
    head: str
    whole: bool


def spelled(text: str, *, truncated: bool) -> Spelling:
    """`text` in the one spelling; `truncated` says that its end is missing."""
    tree = _tree(text)
    if tree is None:
        plain = " ".join(text.split())
        return Spelling(plain, plain.partition("<")[0], whole=False)
    writer = _Writer(tree, top=True)
    key = _renamed(writer.text)
    if truncated and not writer.whole:
        last = re.split(r"[<,]", key)[-1]
        if any(name.startswith(last) for name in _RENAMED):  # whole, it may have had another name
            key = key.removesuffix(last)
    return Spelling(key, _Writer(tree, top=True, templates=False).text, writer.whole)


def _tree(text: str) -> _Group | None:
    """The brackets of `text`; None where they nest deeper than any name does."""
    stack = [_Group("")]
    for token in _TOKEN.findall(text):
        if token in _CLOSERS:
            if len(stack) > MAX_DEPTH:
                return None
            group = _Group(token, closed=False)
            stack[-1].parts.append(group)
            stack.append(group)
        elif token in _CLOSES and stack[-1].opener == _CLOSES[token]:
            stack.pop().closed = True
        else:
            stack[-1].parts.append(token)
    return stack[0]


class _Writer:
    """Writes one name: a whole one (`top`), or an argument of a template."""

    def __init__(self, group: _Group, *, top: bool = False, templates: bool = True) -> None:
        self._words = [""]
        self._templates = templates
        self._space = False
        self._skip_scope = False
        self.whole = False
        function = False
        parts = iter(zip(group.parts, [*group.parts[1:], ""], strict=False))
        for part, following in parts:
            if isinstance(part, str):
                self._token(part)
            elif part.opener == "(" and self._is_parameter_list(part):
                function = True
                self.whole = top
            elif part.opener == "(" and part.parts == ["bool"] and following in ("0", "1"):
                next(parts)
                self._append("true" if following == "1" else "false")
            else:
                self._append(self._bracket(part, following))
        returns = function or (top and any(isinstance(part, _Group) and part.opener == "<" for part in group.parts))
        self.text = self._without_return_type() if returns or self._words[0] == "void" else " ".join(self._words)

    def _token(self, text: str) -> None:
        if text.isspace():
            self._space = True
        elif text[0] in _LEFT_OUT_BEGIN and (_UNNAMED.fullmatch(text) or _VERSION_NAMESPACE.fullmatch(text)):
            self._skip_scope = True
        elif text == "::" and self._skip_scope:
            self._skip_scope = False
        elif text in _QUALIFIERS:
            self._space = True
        elif text.startswith("decltype"):
            self._append("std::nullptr_t" if "nullptr" in text else text)
        elif text.startswith("operator"):
            self._append("".join(text.split()))
        elif text[0].isdigit() and (number := _NUMBER.fullmatch(text)):
            self._append(number.group(1))
        else:
            self._append(text)

    def _append(self, text: str) -> None:
        """Adds to the last word, or begins one; spaces beside signs say nothing."""
        if self._space and _ends_a_word(self._words[-1]) and (text[:1].isalnum() or text[:1] in {"_", "$"}):
            self._words.append(text)
        else:
            self._words[-1] += text
        self._space = self._space and not text

    def _is_parameter_list(self, group: _Group) -> bool:
        """Whether a parenthesis holds the parameters of the function whose name was written last."""
        word = self._words[-1]
        is_lambda = word.endswith("lambda") or group.parts[:1] == ["instance"]
        return _ends_a_word(word) and not is_lambda and (not self._space or word.endswith(">"))

    def _bracket(self, group: _Group, following: "str | _Group") -> str:
        if group.opener == "<":
            if not self._templates:
                return ""
            return "<" + _arguments(group) + (">" if group.closed else "")
        if not group.closed:
            return ""
        inner = _arguments(group)
        if group.opener == "(":
            return self._parenthesis(inner, following)
        if group.opener == "[" and inner.startswith(("lambda", "unnamed")):
            return "{" + inner + "}"
        return group.opener + inner + _CLOSERS[group.opener]

    def _parenthesis(self, inner: str, following: "str | _Group") -> str:
        if inner.startswith("instance "):
            return "#" + inner.removeprefix("instance ")
        if self._words[-1].endswith("&"):
            return inner  # &(float silu<float>(float))
        is_cast = isinstance(following, str) and (following.isalnum() or following == "-")
        if is_cast and _FUNDAMENTAL.fullmatch(inner):
            return ""
        return "(" + inner + ")"

    def _without_return_type(self) -> str:
        """The last word; the address of a function keeps its sign, which stands before the type."""
        sign = "&" if len(self._words) > 1 and self._words[0].startswith("&") else ""
        return sign + self._words[-1]


def _ends_a_word(text: str) -> bool:
    return text[-1:].isalnum() or text[-1:] in {"_", "$", ">", "}", "]", ")"}


def _arguments(group: _Group) -> str:
    return ",".join(_Writer(part).text for part in _split(group))


def _split(group: _Group) -> list[_Group]:
    """The arguments in a group, at its commas."""
    arguments = [_Group(group.opener)]
    for part in group.parts:
        if part == ",":
            arguments.append(_Group(group.opener))
        else:
            arguments[-1].parts.append(part)
    return arguments


def _renamed(key: str) -> str:
    for old, new in _RENAMED.items():
        key = key.replace(old, new)
    return key
