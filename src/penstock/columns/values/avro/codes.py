"""The instructions of a decoding program and the ways in which a row can fail, as plain numbers.

They are module constants because the walk over the rows is compiled, and sees numbers only.
"""

# Instructions that begin with a zigzag variable-length number come first.
LONG = 0  # a: column; low and high: the bounds
BYTES = 1  # a, b: columns of start and length
TEXT = 2  # the same, and the bytes must be UTF-8
ENUM = 3  # a: column; high: the last symbol
DECIMAL = 4  # a, b: columns of the high and low half; high: where its bounds are in the table
UNION = 5  # a: where its jumps are in the table; high: the last branch
BLOCK = 6  # a: column of counts; b: where to go after the last block
SIZE = 7  # the size in bytes of a block whose count was negative
NUMBER_LAST = SIZE
# The rest reads fixed sizes, or nothing.
BOOLEAN = 8  # a: column
FLOAT = 9  # a: column of bits
DOUBLE = 10  # a: column of bits
FIXED = 11  # a, b: columns of start and length; low: the size
DECIMAL_FIXED = 12  # as DECIMAL; low: the size
CONSTANT = 13  # a: column; low: the value
FILL = 14  # a, b: from where and up to where in the table are columns that get a zero
JUMP = 15  # a: where to
LOOP = 16  # the beginning of an array or map
NEXT = 17  # a: the BLOCK of the loop
END = 18

# How a row ended.
DONE = 0
ABSENT = 1
NO_HEADER = 2
WRONG_MAGIC = 3
CUT = 4
NUMBER_TOO_LONG = 5
OUT_OF_RANGE = 6
WRONG_LENGTH = 7
NOT_TEXT = 8
NO_SYMBOL = 9
NO_BRANCH = 10
WRONG_COUNT = 11
NO_BOOLEAN = 12
DECIMAL_TOO_LARGE = 13
LEFT_OVER = 14

REASONS = {
    CUT: "the value ends too early",
    NUMBER_TOO_LONG: "a number has more than 64 bits",
    OUT_OF_RANGE: "a number is outside the range of its type",
    WRONG_LENGTH: "a length is negative or goes past the end of the value",
    NOT_TEXT: "a string is not valid UTF-8",
    NO_SYMBOL: "the enum has no symbol of that number",
    NO_BRANCH: "the union has no branch of that number",
    WRONG_COUNT: "a count goes past the end of the value",
    NO_BOOLEAN: "a boolean is neither 0 nor 1",
    DECIMAL_TOO_LARGE: "a decimal has more digits than its precision",
}
