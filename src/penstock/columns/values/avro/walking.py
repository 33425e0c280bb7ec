"""The walk over a column of Avro values: one program, every row, cells as output.

One function, written so that numba compiles it and Python runs it as it is: with numpy arrays in
the one case, with bytes and lists in the other. It calls nothing, takes only plain numbers and
sequences of them, and keeps each number within 64 signed bits.

Each column is a run of cells, one after another in `cells`; column c has `filled[c]` of them so
far and begins at `begins[c]`. What a cell means is the program's matter: a number, the bits of a
float, the start of bytes, their length, a count of items, 0 or 1 for a value that is there. A row
that fails takes back what it has appended and gets a zero in each of its columns, so that all
columns stay aligned.
"""

from typing import Any

from penstock.columns.values.avro.codes import (
    ABSENT,
    BLOCK,
    BOOLEAN,
    BYTES,
    CONSTANT,
    CUT,
    DECIMAL,
    DECIMAL_FIXED,
    DECIMAL_TOO_LARGE,
    DONE,
    DOUBLE,
    END,
    ENUM,
    FILL,
    FIXED,
    FLOAT,
    JUMP,
    LEFT_OVER,
    LONG,
    LOOP,
    NEXT,
    NO_BOOLEAN,
    NO_BRANCH,
    NO_HEADER,
    NO_SYMBOL,
    NOT_TEXT,
    NUMBER_LAST,
    NUMBER_TOO_LONG,
    OUT_OF_RANGE,
    SIZE,
    TEXT,
    UNION,
    WRONG_COUNT,
    WRONG_LENGTH,
    WRONG_MAGIC,
)

Numbers = Any  # A numpy array of int64 when compiled, a list of int otherwise.


def walk(
    data: Numbers,
    starts: Numbers,
    ends: Numbers,
    present: Numbers,
    header: int,
    codes: Numbers,
    a: Numbers,
    b: Numbers,
    low: Numbers,
    high: Numbers,
    table: Numbers,
    row_columns: Numbers,
    cells: Numbers,
    begins: Numbers,
    filled: Numbers,
    saved: Numbers,
    remaining: Numbers,
    totals: Numbers,
    status: Numbers,
    places: Numbers,
    stopped: Numbers,
    writing: bool,
    checking_text: bool,
) -> None:
    for row in range(len(starts)):
        for column in range(len(filled)):
            saved[column] = filled[column]
        position = starts[row] + 0
        end = ends[row] + 0
        # A row that failed in the walk that counts is not walked again: the cells that it would
        # write before it fails are not among those that were counted.
        known = status[row] + 0
        problem = known
        step = 0
        depth = -1
        if known != DONE:
            pass
        elif present[row] == 0:
            problem = ABSENT
        elif header > 0:
            if end - position < header:
                problem = NO_HEADER
            elif data[position] != 0:
                problem = WRONG_MAGIC
            else:
                position += header
        while problem == DONE:
            code = codes[step]
            number = 0
            if code <= NUMBER_LAST:
                if position >= end:
                    problem = CUT
                    break
                byte = data[position] + 0
                position += 1
                negative = byte & 1
                number = (byte & 127) >> 1
                shift = 6
                while byte > 127:
                    if position >= end:
                        problem = CUT
                        break
                    byte = data[position] + 0
                    position += 1
                    # The tenth byte has one bit left.
                    if shift > 62 or (shift == 62 and byte > 1):
                        problem = NUMBER_TOO_LONG
                        break
                    number |= (byte & 127) << shift
                    shift += 7
                if problem != DONE:
                    break
                if negative:
                    number = -number - 1
            left = end - position
            following = step + 1
            outputs = 0
            first = number
            second = 0
            if code == LONG:
                if number < low[step] or number > high[step]:
                    problem = OUT_OF_RANGE
                outputs = 1
            elif code in (BYTES, TEXT, FIXED):
                if code == FIXED:
                    number = low[step] + 0
                if number < 0 or number > left:
                    problem = CUT if code == FIXED else WRONG_LENGTH
                    break
                if code == TEXT and checking_text:
                    at = position
                    stop = position + number
                    while at < stop:
                        lead = data[at] + 0
                        if lead < 128:
                            at += 1
                            continue
                        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
                        if lead < 0xC2 or lead > 0xF4 or at + more >= stop:
                            problem = NOT_TEXT
                            break
                        # Overlong forms, surrogates and what is past the last code point.
                        least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
                        most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
                        if data[at + 1] < least or data[at + 1] > most:
                            problem = NOT_TEXT
                            break
                        if more > 1 and (data[at + 2] < 0x80 or data[at + 2] > 0xBF):
                            problem = NOT_TEXT
                            break
                        if more > 2 and (data[at + 3] < 0x80 or data[at + 3] > 0xBF):
                            problem = NOT_TEXT
                            break
                        at += more + 1
                first = position
                second = number
                outputs = 2
                position += number
            elif code == UNION:
                if number < 0 or number > high[step]:
                    problem = NO_BRANCH
                else:
                    following = table[a[step] + number] + 0
            elif code == CONSTANT:
                first = low[step] + 0
                outputs = 1
            elif code == FILL:
                for n in range(a[step], b[step]):
                    column = table[n]
                    if writing:
                        cells[begins[column] + filled[column]] = 0
                    filled[column] += 1
            elif code == JUMP:
                following = a[step] + 0
            elif code in (DOUBLE, FLOAT):
                width = 8 if code == DOUBLE else 4
                if left < width:
                    problem = CUT
                    break
                # The last byte carries the sign, so that no shift leaves 64 signed bits.
                first = data[position + width - 1] + 0
                if first > 127:
                    first -= 256
                for n in range(width - 2, -1, -1):
                    first = (first << 8) | (data[position + n] + 0)
                outputs = 1
                position += width
            elif code == BOOLEAN:
                if left < 1:
                    problem = CUT
                elif data[position] > 1:
                    problem = NO_BOOLEAN
                else:
                    first = data[position] + 0
                    outputs = 1
                    position += 1
            elif code == ENUM:
                if number < 0 or number > high[step]:
                    problem = NO_SYMBOL
                outputs = 1
            elif code in (DECIMAL, DECIMAL_FIXED):
                if code == DECIMAL_FIXED:
                    number = low[step] + 0
                if number < 1 or number > left:
                    problem = CUT if code == DECIMAL_FIXED else WRONG_LENGTH
                    break
                sign = -1 if data[position] > 127 else 0
                first = sign
                second = sign
                for n in range(number):
                    byte = data[position + n] + 0
                    if n + 16 < number and byte != (sign & 255):
                        problem = DECIMAL_TOO_LARGE
                        break
                    # Both halves move one byte to the left; the top byte of each is dropped
                    # by arithmetic that stays within 64 signed bits.
                    carry = (second >> 56) & 255
                    first = (((first & 0x7FFFFFFFFFFFFF) - (first & 0x80000000000000)) << 8) | carry
                    second = (
                        ((second & 0x7FFFFFFFFFFFFF) - (second & 0x80000000000000)) << 8
                    ) | byte
                if (first < 0) != (sign < 0):
                    problem = DECIMAL_TOO_LARGE
                at = high[step] + 0
                # Unsigned order of the low halves is signed order with the top bit turned.
                turned = second ^ table[at]
                above = first > table[at + 1] or (first == table[at + 1] and turned > table[at + 2])
                below = first < table[at + 3] or (first == table[at + 3] and turned < table[at + 4])
                if above or below:
                    problem = DECIMAL_TOO_LARGE
                outputs = 2
                position += number
            elif code == LOOP:
                depth += 1
                totals[depth] = 0
            elif code == BLOCK:
                if number == 0:
                    first = totals[depth] + 0
                    outputs = 1
                    depth -= 1
                    following = b[step] + 0
                elif number > left or number < -left:
                    problem = WRONG_COUNT
                else:
                    following = step + 1 if number < 0 else step + 2
                    number = -number if number < 0 else number
                    remaining[depth] = number
                    totals[depth] += number
            elif code == SIZE:
                if number < 0 or number > left:
                    problem = WRONG_LENGTH
            elif code == NEXT:
                remaining[depth] -= 1
                following = a[step] + 2 if remaining[depth] > 0 else a[step] + 0
            elif code == END:
                if left > 0:
                    problem = LEFT_OVER
                break
            if problem != DONE:
                break
            if outputs > 0:
                column = a[step]
                if writing:
                    cells[begins[column] + filled[column]] = first
                filled[column] += 1
            if outputs > 1:
                column = b[step]
                if writing:
                    cells[begins[column] + filled[column]] = second
                filled[column] += 1
            step = following
        if known == DONE:
            status[row] = problem
            places[row] = position - starts[row]
            stopped[row] = step
        if problem != DONE:
            for column in range(len(filled)):
                filled[column] = saved[column]
            for n in range(len(row_columns)):
                column = row_columns[n]
                if writing:
                    cells[begins[column] + filled[column]] = 0
                filled[column] += 1


def gather(data: Numbers, starts: Numbers, lengths: Numbers, out: Numbers) -> None:
    """Copy pieces of `data` one behind the other; compiled only, Python joins slices instead."""
    at = 0
    for n in range(len(starts)):
        start = starts[n]
        for m in range(lengths[n]):
            out[at + m] = data[start + m]
        at += lengths[n]
