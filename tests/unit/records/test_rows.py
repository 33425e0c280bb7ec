"""Proves that rows become the records that they are, with numbers of every length."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import build_row_batch, decode_records
from penstock.records.rows import Row

texts = st.binary(max_size=200) | st.none()
rows = st.builds(
    Row,
    texts,
    texts | st.binary(min_size=8100, max_size=8300),
    st.lists(st.tuples(st.text(max_size=20), texts), max_size=3),
    st.integers(-1, 2**62),
)


@given(st.lists(rows, min_size=1, max_size=20))
def test_what_goes_in_comes_out(wanted: list[Row]) -> None:
    found = [
        Row(record.key, record.value, list(record.headers), record.timestamp_ms)
        for record in decode_records(build_row_batch(wanted))
    ]
    assert found == wanted


def test_a_batch_of_many_rows_is_numbered_without_a_gap() -> None:
    wanted = [Row(None, b"%d" % number, (), 5) for number in range(20_000)]
    found = list(decode_records(build_row_batch(wanted)))
    assert [record.offset for record in found] == list(range(20_000))
    assert found[-1].value == b"19999"
