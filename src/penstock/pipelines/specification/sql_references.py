"""Finds the tables that a query in Spark's SQL reads, so that its inputs need not be listed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlglot import Token

_BEFORE_TABLE = ("FROM", "JOIN", "COMMA")


class SqlNotRead(Exception):
    """A query can't be understood; the text is one sentence."""

    def __init__(self, sentence: str, position: int = 0) -> None:
        super().__init__(sentence)
        self.position = position
        """Of the character in the query from which on it can't be read."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table's name and where the query mentions it first."""

    name: str
    position: int


def tables_of(sql: str) -> tuple[str, ...]:
    """The tables' names as they are written, each once; raises SqlNotRead."""
    return tuple(table.name for table in table_references(sql))


def table_references(sql: str) -> tuple[TableReference, ...]:
    """The tables that a query reads and does not define itself, in the order of the text.

    A name with a qualifier, such as a.b or parquet.`/folder`, is Spark's own table and left out.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    query = _parsed(sql)
    try:
        scopes = traverse_scope(query)
    except SqlglotError as error:
        raise SqlNotRead(f"The query is ambiguous: {error}.") from None
    found: dict[str, int] = {}
    for scope in scopes:
        for source in scope.sources.values():
            if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
                continue
            if source.db or source.catalog:
                continue
            position = source.this.meta.get("start", 0)
            found[source.name] = min(position, found.get(source.name, position))
    # Spark takes names in any case, so one that is written in two ways is one table.
    by_lower: dict[str, TableReference] = {}
    for name, position in sorted(found.items(), key=lambda item: item[1]):
        by_lower.setdefault(name.lower(), TableReference(name, position))
    return tuple(by_lower.values())


def _parsed(sql: str) -> Any:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, SqlglotError

    dialect = Dialect.get_or_raise("spark")
    try:
        statements = dialect.parser().parse(_tokens(dialect, sql), sql)
    except ParseError as error:
        raise _not_read(error, sql) from None
    except (SqlglotError, RecursionError) as error:
        raise SqlNotRead(f"The query can't be read: {str(error).splitlines()[0]}.") from None
    queries = [statement for statement in statements if statement is not None]
    if not queries:
        raise SqlNotRead("There is no query.")
    if len(queries) > 1:
        raise SqlNotRead("There is more than one statement; give one query.")
    if not isinstance(queries[0], exp.Query):
        raise SqlNotRead("This is not a query: it must start with SELECT, FROM or WITH.")
    return queries[0]


def _tokens(dialect: Any, sql: str) -> "list[Token]":
    """With two words read as Spark reads them.

    `window` is a function or a column unless a WINDOW clause follows, and STREAM before a table
    says only that it is read as a stream.
    """
    from sqlglot import Token, TokenType

    tokens = dialect.tokenize(sql)
    kept: list[Token] = []
    for index, token in enumerate(tokens):
        following = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        is_clause = index + 2 < len(tokens) and tokens[index + 2].token_type is TokenType.ALIAS
        if token.token_type is TokenType.WINDOW and not is_clause:
            place = {"line": token.line, "col": token.col, "start": token.start, "end": token.end}
            token = Token(TokenType.VAR, token.text, **place)
        is_table = bool(kept) and kept[-1].token_type.name in _BEFORE_TABLE
        if token.text.upper() == "STREAM" and is_table and _starts_a_table(following):
            continue
        kept.append(token)
    return kept


def _starts_a_table(token_type: Any) -> bool:
    from sqlglot import TokenType

    return token_type in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.L_PAREN)


def _not_read(error: Any, sql: str) -> SqlNotRead:
    """The parser names the last character of the word at which it gave up."""
    first = error.errors[0] if error.errors else {}
    word = first.get("highlight") or ""
    position = len(first.get("start_context") or "")
    line, column = first.get("line"), first.get("col")
    if line and column:
        starts = [0, *(index + 1 for index, one in enumerate(sql) if one == "\n")]
        position = max(0, starts[line - 1] + column - len(word)) if line <= len(starts) else 0
    near = f' near "{word}"' if word else ""
    return SqlNotRead(f"The query can't be read{near}.", position)
