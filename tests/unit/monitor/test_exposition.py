"""Prometheus' text format: real expositions, and prometheus-client's own parser as the judge."""

from __future__ import annotations

import math

import pytest
from astraeus_monitor.sources.exposition import Series, series
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families


def values(text: bytes, name: str) -> list[float]:
    return [one.value for one in series(text, name)]


@pytest.mark.parametrize(("text", "name", "expected"), [
    (b"suminfo_oss_sum 4424 \n", "suminfo_oss_sum", [4424]),
    (b"suminfo_osssize_sum 0 1\n", "suminfo_osssize_sum", [0]),  # 1 is a time stamp
    (b'# TYPE light_8618 counter\nlight_8618{set_id="0"} 19264182.000000\n# TYPE light_8618 counter\n'
     b"light_8618 18914014.000000\n", "light_8618", [19264182, 18914014]),
    (b'jvm_info{version="1.8.0_102-b14",vendor="Oracle Corporation",} 1.0\n', "jvm_info", [1]),
    (b'position_percentage{name="Rollo Schlafzimmer West"} 100 1673170769987\n', "position_percentage", [100]),
    (b'a_total 1 # {id="9856e"} 0.67\n', "a_total", [1]),
    (b'foo_bucket{le="10"} 17 # {id="12fa8"} 9.8 1520879607.789\nfoo_bucket{le="0.1"} 8 # {} 0.054\n',
     "foo_bucket", [17, 8]),
    (b"# TYPE nathan_foo counter\nnathan_foo_total 17.0\n# EOF\n", "nathan_foo", [17]),
    (b'x{user="\xfftest-api"} 3\n', "x", [3]),
    (b"a 1\nstep 7", "step", [7]),
    (b"x 1e+06\nx 2.56e+7\nx +Inf\nx -Inf\n", "x", [1e6, 2.56e7, math.inf, -math.inf]),
    (b"x 5\r\n", "x", [5]),
    (b"x\t5\n  x 6\n", "x", [5, 6]),
    (b"x nonsense\nx 1_000\nx\nx 4\n", "x", [4]),  # a bad line costs no other line
    (b'steps 1\nmy_step 2\nstep_size 3\ny{a="step 4"} 5\n# step 6\n', "step", []),
    (b'x{a="b" 1\nx{a=b} 2\nx{a="}"} 3\n', "x", [3]),
])
def test_real_expositions(text: bytes, name: str, expected: list[float]) -> None:
    assert values(text, name) == expected


def test_nan_is_no_number() -> None:
    found = values(b'http_request_duration_us{quantile="0.5"} NaN\nx Nan\n', "http_request_duration_us")
    assert len(found) == 1
    assert math.isnan(found[0])


def test_escapes_in_labels() -> None:
    assert series(b'x{a="say \\"hi\\"\\n",b="c:\\\\d",c="\\q"} 1\n', "x") == [
        Series({"a": 'say "hi"\n', "b": "c:\\d", "c": "\\q"}, 1)]


def test_a_million_lines_of_others_cost_little() -> None:
    text = b'other_metric{label="value"} 1\n' * 30_000 + b"step 5\n"
    assert values(text, "step") == [5]


NAMES = st.sampled_from(["step", "step_total", "steps", "x:y", "a"])
BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
LABELS = st.dictionaries(
    st.sampled_from(["rank", "le", "_b", "c9"]),
    st.text(st.characters(codec="utf-8", exclude_characters=BREAKS), max_size=8), max_size=3)
NUMBERS = st.one_of(st.floats(allow_nan=False).map(repr), st.integers(-10**12, 10**12).map(str),
                    st.sampled_from(["+Inf", "-Inf", "1e6", "0.0", ".5", "5.", "1E-3"]))


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> str:
    labels = draw(LABELS)
    inside = ",".join(f'{k}="{quoted(v)}"' for k, v in labels.items())
    comma = draw(st.sampled_from(["", ","])) if labels else ""
    braces = f"{{{inside}{comma}}}" if labels or draw(st.booleans()) else ""
    gap, stamp = draw(st.sampled_from([" ", "  ", "\t"])), draw(st.sampled_from(["", " 1673170769987", " 1"]))
    return f"{draw(NAMES)}{braces}{gap}{draw(NUMBERS)}{stamp}"


@settings(max_examples=100, deadline=None)
@given(st.lists(lines(), max_size=8))
def test_equal_to_prometheus_client(text: list[str]) -> None:
    whole = "\n".join(["# HELP other no", *text, ""])
    theirs: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(whole):
        for sample in family.samples:
            theirs.setdefault(sample.name, []).append((sample.labels, sample.value))
    for name in ("steps", "x:y", "a", "step_total"):
        ours = [(one.labels, one.value) for one in series(whole.encode(), name)]
        assert ours == theirs.get(name, []), name
    ours = [(one.labels, one.value) for one in series(whole.encode(), "step")]
    assert ours == (theirs.get("step") or theirs.get("step_total", []))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_nothing_breaks_it(noise: bytes) -> None:
    assert all(isinstance(one.value, float) for one in series(b"step" + noise + b"\nstep{" + noise, "step"))
