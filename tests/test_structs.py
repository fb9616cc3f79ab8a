"""Structs: groups of arrays that kernels take as one pointer."""

import os
import pickle
import subprocess
import sys
import textwrap

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel, record_type, records

PAIR = record_type("left", "right")


class Inside(Struct):
    values: NDArray[np.float64]
    scale: float


class Outside(Struct):
    vector: NDArray[np.float64]
    matrix: NDArray[np.float64]
    column: NDArray[np.int64]
    pairs: object
    inside: Inside
    count: int
    share: float
    flag: bool = False


def make(**changes):
    matrix = np.arange(12.0).reshape(3, 4)
    whole = {
        "vector": np.arange(5.0), "matrix": matrix, "column": np.arange(12).reshape(3, 4)[:, 1],
        "pairs": records(PAIR, [1, 2], [30, 40]), "inside": Inside(np.array([2.0, 3.0]), 7), "count": -3, "share": -0.25,
    }  # fmt: skip
    return Outside(**whole | changes)


@inner
def total(struct, k):
    return struct.inside.values[k] * struct.inside.scale


@kernel
def read(struct, out):
    out[0] = struct.vector[4]
    out[1] = struct.matrix[2, 1]
    out[2] = struct.column[2]
    out[3] = struct.pairs[1].left + struct.pairs[1].right
    out[4] = total(struct, 1)
    out[5] = struct.count
    out[6] = struct.share
    out[7] = 1.0 if struct.flag else 0.0
    struct.vector[0] = 42.0
    return len(struct.vector) + struct.matrix.shape[0] + struct.matrix.shape[1] + struct.column.size


EXPECTED = [4.0, 9.0, 9.0, 42.0, 21.0, -3.0, -0.25]


@pytest.mark.parametrize("flag", [False, True])
def test_kernels_read_and_write_what_python_gave(flag):
    struct, out = make(flag=flag), np.empty(8)
    assert read(struct, out) == 5 + 3 + 4 + 3
    np.testing.assert_array_equal(out, [*EXPECTED, float(flag)])
    assert struct.vector[0] == 42.0


def test_a_struct_holds_its_arrays():
    struct = make(vector=np.arange(5.0) + 100.0, inside=Inside(np.full(2, 5.0), 2.0))
    for _ in range(50):
        # What would lie in the arrays' place if nobody held them.
        np.full(5, -1.0), np.full(2, -1.0)
    out = np.empty(8)
    read(struct, out)
    assert out[0] == 104.0
    assert out[4] == 10.0


def test_numbers_have_one_type():
    before = len(read.signatures)
    for share in (1, 2.5, np.float32(1.0), np.int64(3)):
        read(make(share=share, count=np.int32(4)), np.empty(8))
    assert len(read.signatures) == max(before, 1)
    assert isinstance(make(share=1).share, float)


def test_types_are_those_of_the_fields():
    assert numba.typeof(make()) is numba.typeof(make())
    single = make(vector=np.arange(5, dtype=np.float32))
    assert numba.typeof(single) != numba.typeof(make())
    out = np.empty(8)
    read(single, out)
    np.testing.assert_array_equal(out[:7], EXPECTED)
    # A strided array is another type, and read as such.
    read(make(vector=np.arange(10.0)[::2], matrix=np.arange(24.0).reshape(3, 8)[:, ::2]), out)
    assert out[0] == 8.0
    assert out[1] == 18.0


def test_python_sees_a_frozen_record():
    struct = make()
    assert len(struct) == len(list(struct)) == 8
    assert struct.flag is False
    with pytest.raises(AttributeError, match="Outside does not change"):
        struct.count = 4
    other = struct._replace(count=9)
    assert (other.count, struct.count) == (9, -3)
    assert other.vector is struct.vector
    copied = Inside(np.ones(2), 1.0)._copy()
    copied.values[0] = 5.0
    assert Inside(np.ones(2), 1.0).values[0] == 1.0
    for wrong, sentence in (
        (lambda: Inside(np.ones(2)), "misses scale"),
        (lambda: Inside(np.ones(2), 1.0, 2.0), "takes values, scale"),
        (lambda: Inside(np.ones(2), 1.0, scale=2.0), "each once"),
        (lambda: Inside(np.ones(2), size=2.0), "takes values, scale"),
    ):
        with pytest.raises(TypeError, match=sentence):
            wrong()
    again = pickle.loads(pickle.dumps(struct))
    np.testing.assert_array_equal(again.pairs, struct.pairs)
    out = np.empty(8)
    read(again, out)
    np.testing.assert_array_equal(out[:7], EXPECTED)


def test_a_number_and_a_variable_make_one_function():
    @inner
    def shifted(x, by):
        return x + by

    @kernel
    def both(x, by):
        return shifted(x, 0) + shifted(x, by)

    assert both(1.0, 2) == 4.0
    assert len(shifted.signatures) == 1


def test_without_numba_kernels_are_python():
    program = """
        import numpy as np
        from maxmargin.jit import Struct, kernel
        class Two(Struct):
            one: np.ndarray
            number: float
        @kernel
        def run(two):
            return two.one[1] + two.number
        assert run(Two(np.array([1.0, 2.0]), 3)) == 5.0
        import maxmargin as mm
        model = mm.ChainSVM(C=1.0, max_passes=2).fit([np.eye(3)], [[0, 1, 0]])
        assert model.predict([np.eye(3)])[0].shape == (3,)
    """
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], env=environment, check=True, timeout=300
    )
