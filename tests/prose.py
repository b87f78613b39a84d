"""Find phrases that our style bans, in Markdown, docstrings, comments and messages; long lines in Markdown.

Usage: ``python tests/prose.py [--counts] [PATH ...]``. Without paths, the whole repository is searched. Text
in backticks and in fenced code is skipped; tables and lines with links may be long. The exit status is 1 if
something was found.
"""

import argparse
import ast
import bisect
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md", "docs"),
    *("python", "src", "tests", "benches", "examples", "Makefile", "Cargo.toml", "pyproject.toml", ".ci/run"),
)
SKIPPED = {"__pycache__", "target", "results", "proptest-regressions", "_build"}

# A phrase, as a regular expression over text with single spaces, and what to write instead.
BANNED = {
    r"this (module|file|page|folder|type) knows": "what it does, first",
    r"(go|goes|going|gone|went) on with": "resume, continue",
    r"rul(e|es|ed|ing)( \S+){0,2} out": "skip, prune, exclude",
    r"same bits": "bit-identical",
    r"(is|are|be|been|being|was|were) refused": "raises an error; must be ...",
    r"on (its|their) way": "during the fit; before it ends",
    r"of each (row|cluster|center|component|point|sample|feature|thread|tile|block)": "per-row, ...",
    r"beside(s)? (other|others|work|each other)": "on a shared machine; next to",
    r"held out beside": "held-out rows, validation set",
    r"(next|present) one is (asked|worked)": "prefetch one block",
    r"(given|gave|give|gives|giving) (up by|them up|it up|these up|those up)": "stop using; fall back to",
    r"(read|used) again and again": "re-readable",
    r"that never ends?": "a stream; too large to scan repeatedly",
    r"most memory (that|which|of)": "memory budget, upper limit",
    r"(find|finds|found) so many of": "recall",
    r"point'?s home": "label",
    r"row of it to show": "represented by one of its rows",
    r"not at any row": "no random access",
    r"hangs? together": "is connected",
    r"handed through": "passed on",
    r"(is|are) told": "receives; gets",
    r"knows nothing": "does not depend on",
    r"what (is|are|was|were) (kept|made|asked|due)": "the noun",
    r"lets? (everybody|everyone) watch": "calls the observers",
    r"wants (a|an|the|no)": "needs",
    r"shall": "must, should, will",
    r"larger than memory by": "times the memory",
    # American spelling.
    r"(neighbour|behaviour|colour|favour|honour|flavour)\w*": "-or",
    r"(labell|modell|cancell|travell|signall)(ed|ing)": "one l",
    r"(normalis|optimis|initialis|vectoris|recognis|summaris|minimis|maximis|parallelis|serialis)\w+": "-ize",
    r"(cent|met)res?": "-er",
    r"grey|whilst|amongst|learnt|judgement|catalogue": "American spelling",
}
PATTERN = re.compile("|".join(rf"(?P<p{i}>\b(?:{p})\b)" for i, p in enumerate(BANNED)), re.IGNORECASE)
REMEDIES = list(BANNED.values())

WIDTH = 100
LONG_LINE = re.compile(rf"^(?! *\|)(?!.*\]\().{{{WIDTH},}}.$", re.MULTILINE)
CODE_SPAN = re.compile(r"(`+)[^`\n]+\1")
FENCE = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
RUST_TOKEN = re.compile(
    r"""(?P<comment>//[/!]?(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/)"""
    r"""|b?c?r(?P<hashes>\#+)"(?P<fenced>.*?)"(?P=hashes)|b?c?r"(?P<raw>[^"]*)"|"(?P<string>(?:\\.|[^"\\])*)\""""
    r"""|'(?:\\[^\n']+|[^\\'\n])'""",
    re.DOTALL,
)
HASH_COMMENT = re.compile(r"(?:^|(?<=\s))#+(?P<line>[^\n]*)", re.MULTILINE)

Piece = tuple[int, str]
"""The first line of a text, and the text."""


def blank(text: str, pattern: re.Pattern[str]) -> str:
    """Replace all matches by a sign that no phrase contains, line breaks aside."""
    return pattern.sub(lambda m: "\0" + "\n" * m.group().count("\n"), text)


def paragraphs(comments: Iterable[Piece]) -> Iterator[Piece]:
    """Join comments on consecutive lines."""
    first, last, text = 0, -1, ""
    for line, comment in comments:
        if line == last + 1:
            text += "\n" + comment
        else:
            if text:
                yield first, text
            first, text = line, comment
        last = line + comment.count("\n")
    if text:
        yield first, text


def of_markdown(source: str) -> Iterator[Piece]:
    """Everything outside of fenced code."""
    yield 1, blank(source, FENCE)


def of_python(source: str) -> Iterator[Piece]:
    """Comments, docstrings and other strings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from paragraphs((t.start[0], t.string.lstrip("#")) for t in tokens if t.type == tokenize.COMMENT)
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def of_rust(source: str) -> Iterator[Piece]:
    """Comments and strings."""
    ends = [m.start() for m in re.finditer("\n", source)]
    comments = []
    for match in RUST_TOKEN.finditer(source):
        line = bisect.bisect_left(ends, match.start()) + 1
        if match["comment"]:
            comments.append((line, match["line"] if match["line"] is not None else match["block"]))
        elif text := match["string"] or match["raw"] or match["fenced"]:
            yield line, re.sub(r"\\\n\s*", "", text)
    yield from paragraphs(comments)


def of_script(source: str) -> Iterator[Piece]:
    """Comments behind a hash sign."""
    found = ((source.count("\n", 0, m.start()) + 1, m["line"]) for m in HASH_COMMENT.finditer(source))
    yield from paragraphs(found)


READERS = {
    ".md": of_markdown,
    ".py": of_python,
    ".pyi": of_python,
    ".rs": of_rust,
    **dict.fromkeys((".toml", ".sh", ".yml", ".yaml", ""), of_script),
}


def offences(source: str, suffix: str) -> list[tuple[int, str, str]]:
    """Line, text and remedy of every banned phrase and every long line."""
    found = []
    if suffix == ".md":
        prose = blank(source, FENCE)
        for match in LONG_LINE.finditer(prose):
            line = prose.count("\n", 0, match.start()) + 1
            found.append((line, f"{match.group()[:40]}...", f"lines of at most {WIDTH} characters"))
    for first, text in READERS[suffix](source):
        text = blank(text, CODE_SPAN)
        words = list(re.finditer(r"\S+", text))
        starts, length = [], 0
        for word in words:
            starts.append(length)
            length += len(word.group()) + 1
        for match in PATTERN.finditer(" ".join(word.group() for word in words)):
            word = words[bisect.bisect_right(starts, match.start()) - 1]
            line = first + text.count("\n", 0, word.start())
            found.append((line, match.group(), REMEDIES[int(str(match.lastgroup)[1:])]))
    return sorted(found)


def files(places: Iterable[Path]) -> Iterator[Path]:
    """The files that are searched."""
    for place in places:
        if place.is_file():
            yield place
        else:
            inside = (p for p in sorted(place.rglob("*")) if p.is_file() and p.suffix in READERS and p.suffix)
            yield from (p for p in inside if not SKIPPED.intersection(p.relative_to(place).parts))


def main() -> int:
    """Print offences and their number per file."""
    parser = argparse.ArgumentParser(description="Find phrases that our style bans.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--counts", action="store_true", help="print only the number per file and per phrase")
    args = parser.parse_args()
    per_file: Counter[str] = Counter()
    per_phrase: Counter[str] = Counter()
    for path in files(path.resolve() for path in args.paths or (ROOT / place for place in PLACES)):
        if path == Path(__file__).resolve():
            continue
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        for line, phrase, remedy in offences(path.read_text(encoding="utf-8"), path.suffix):
            per_file[name] += 1
            per_phrase[phrase.lower()] += 1
            if not args.counts:
                print(f"{name}:{line}: {phrase!r}: write: {remedy}")
    if args.counts:
        for counter in (per_phrase, per_file):
            print("".join(f"{n:5} {what}\n" for what, n in counter.most_common()))
    if per_file:
        print(f"{per_file.total()} offenses in {len(per_file)} files", file=sys.stderr)
    return int(bool(per_file))


if __name__ == "__main__":
    sys.exit(main())
