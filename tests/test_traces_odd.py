"""Odd files: the right answer, or one message with file, line, column and the option that helps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rhovec.errors import TraceError
from rhovec.traces import Log, read_logs, resample

nan = math.nan
Answer = dict[str, list[float]]


def x(*values: float, t: list[float] | None = None) -> Answer:
    return {"t": t if t is not None else [float(i) for i in range(len(values))], "x": list(values)}


ENUM = {"labels": {"g": {"D": 7}}}
ONLY_X = {"variables": ["x"]}
ROWS_OF_X = {"layout": "rows", "variables": ["x"]}
# (content, options, answer or message), where {} stands for the file.
CASES: list[tuple[str | bytes, dict[str, Any], Answer | str]] = [
    # separators and decimal points
    ("t,x\n0,1\n1,2\n", {}, x(1, 2)),
    ("t;x\n0;1\n1;2\n", {}, x(1, 2)),
    ("t\tx\n0\t1\n1\t2\n", {}, x(1, 2)),
    ("t|x\n0|1\n1|2\n", {}, x(1, 2)),
    ("t;x\n0,0;1,5\n0,5;2,5\n", {}, x(1.5, 2.5, t=[0, 0.5])),
    ("t\tx\n0,0\t1,5\n0,5\t2,5\n", {}, x(1.5, 2.5, t=[0, 0.5])),
    ("t;x\n0;1.5\n1;2,5\n", {}, "{}:2, column 'x': '1.5' has a decimal point where other numbers"),
    ("t;x\n0,0;1.000\n0,1;2.500\n", {},
     "{}: column 't' has decimal commas, but 'x' has decimal points; write all numbers alike"),
    ("t;x;y\n0,0;1;1.5\n0,1;2;2.5\n", ONLY_X, x(1, 2, t=[0, 0.1])),
    ("t;x;g\n0,0;1;1.5.2\n0,1;2;v1.3\n", ONLY_X, x(1, 2, t=[0, 0.1])),
    ("x_0;x_1\n0,5;1\n1.5;2\n", {"layout": "rows"}, "{}: column 'x' has decimal commas, but 'x' has"),
    ("t;x\n0;1.234,5\n1;2\n", {}, "{}:2, column 'x': '1.234,5' is not a number"),
    ('t,x\n0,"1,5"\n1,2\n', {}, "{}:2, column 'x': '1,5' is not a number; write numbers as in 1234.5"),
    *((f't;x\n0;1\n1;{text}\n', {}, f"{{}}:3, column 'x': {text!r} is not a number; write numbers as in")
      for text in ("1.234,5", "-1,234.5", "1.234.567", "1 234", "1\u202f234,5", "+12'345.5")),
    ('t,x\n0,"1,234"\n1,1\n', {},
     "{}:2, column 'x': '1,234' is not a number; write numbers as in 1234.5, without separators of tho"),
    ("t;x (m,s)\n0,5;1,5\n1,5;2,5\n", {}, x(1.5, 2.5, t=[0.5, 1.5])),
    ("sep=;\nt;x\n0;1\n1;2\n", {}, x(1, 2)),
    ("sep=|\nt|x\n0|1,5\n1|2\n", {}, x(1.5, 2)),
    ("t;x;\n0;1;\n1;2;\n", {}, x(1, 2)),
    ("t;x\n0;1;;\n1;2;;\n", {}, x(1, 2)),
    ("t;x\n0;1e3\n1;-2,5E-1\n", {}, x(1000, -0.25)),
    ("t,x\n0,+1\n1,.5\n", {}, x(1, 0.5)),
    (" t , x \n 0 , 1 \n 1 , 2 \n", {}, x(1, 2)),
    # encodings, line ends and marks
    (b"\xef\xbb\xbft,x\n0,1\n1,2\n", {}, x(1, 2)),
    ("t,x\n0,1\n1,2\n".encode("utf-16"), {}, x(1, 2)),
    ("t,x\n0,1\n1,2\n".encode("utf-16-le"), {"encoding": "utf-16-le"}, x(1, 2)),
    ("t,x\n0,1\n1,2\n".encode("utf-16-le"), {}, "{}:1: binary data where text was expected; cut"),
    (b"\xff\xfet", {}, "{}: "),
    (b"t,x\r\n0,1\r\n1,2\r\n", {}, x(1, 2)),
    (b"t,x\r0,1\r1,2\r", {}, x(1, 2)),
    (b"t,x\n0,1\n1,2", {}, x(1, 2)),
    (b"t,x\n0,1\n1,2\n\n\n\r\n", {}, x(1, 2)),
    ("t,x (°C)\n0,1\n1,2\n".encode("cp1252"), {}, x(1, 2)),
    ("t,x,y (°C)\n0,1,2\n1,2,3\n".encode("cp1252"), ONLY_X, x(1, 2)),
    ("t,größe\n0,1\n".encode("cp1252"), {"variables": ["größe"]}, "{}: there is no column 'größe'"),
    ("t,größe\n0,1\n".encode("cp1252"), {"variables": ["größe"], "encoding": "cp1252"},
     {"t": [0], "größe": [1]}),
    ("t,g\n0,D\n1,zurück\n".encode("cp1252"), ENUM, "{}:3, column 'g': the text is not UTF-8; name"),
    ("t,g\n0,D\n1,zurück\n".encode("cp1252"), {**ENUM, "encoding": "cp1252"},
     {"t": [0, 1], "g": [7, 8]}),
    ("t,x\n0,1\n", {"encoding": "utf-9"}, "there is no encoding 'utf-9'"),
    (b"t,x\n0,1\n1,\x002\n", {}, "{}:3: binary data"),
    (b"t,x\n0,1\n" + bytes(100), {}, "{}:3: binary data where text was expected; cut the file off"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", {}, "{}:3: binary data"),
    (b"PK\x03\x04\x00", {}, "{}:1: binary data"),
    ("t,x\n0,−1\n1,2\n", {}, "{}:2, column 'x': '−1' is not a number"),
    ("t,x\n0,1\n1,1_0\n", {}, "{}:3, column 'x': '1_0' is not a number"),
    ("t,x\n0,1\n1,0x10\n", {}, "{}:3, column 'x': '0x10' is not a number"),
    # headers
    ("", {}, "{}: the file is empty"),
    ("\n\n\n", {}, "{}: the file is empty"),
    (" , \n", {}, "{}: the file is empty"),
    ("t,x\n", {}, "{}: there is a header but no row below it"),
    ("t,x\n,\n;\n", {}, "{}:3: 1 cell, but the header has 2"),
    ("0,1\n1,2\n", {}, "{}:1: a number, but the first line must name the columns; if each row"),
    ("t,x,x\n0,1,2\n", ONLY_X, "{}: column 'x' appears twice"),
    ("t,x,y,y\n0,1,2,3\n1,2,3,4\n", ONLY_X, x(1, 2)),
    ("t,x,,\n0,1,2,3\n1,2,3,4\n", ONLY_X, x(1, 2)),
    ("t,X\n0,1\n", ONLY_X, "{}: there is no column 'x'; it has: t, X"),
    ("t,speeed\n0,1\n", {"variables": ["speed"]}, "is it 'speeed'?"),
    ("t,y\n0,1\n", {"time_column": "clock"}, "{}: there is no column 'clock'"),
    ("Time (s),x [m/s]\n0,1\n1,2\n", {}, x(1, 2)),
    ("Time (ms),x (m/s)\n0,1\n1000,2\n", {}, x(1, 2)),
    ("TIME[us];x\n0;1\n500000;2\n", {}, x(1, 2, t=[0, 0.5])),
    ("timestamp,x\n0,1\n1,2\n", {}, x(1, 2)),
    ("t,x\n0,1\n3,2\n", {"time_unit": "min"}, x(1, 2, t=[0, 180])),
    ("time_ms,x\n0,1\n1000,2\n", {"time_column": "time_ms"}, x(1, 2)),
    ("time_ms,x\n0,1\n1000,2\n", {}, x(1, 2)),
    ("Timestamp_us,x\n0,1\n1000000,2\n", {}, x(1, 2)),
    ("time_ms,t,x\n5,0,1\n6,1,2\n", ONLY_X, x(1, 2)),
    ("time_s,time_ns,x\n0,5,1\n0,9,2\n", {},
     "{}: no column is called time, t or timestamp, but 'time_s' may be the times"),
    ("time,x\n50000000.000000001,1\n50000000.000000002,2\n50000000.000000003,3\n", {},
     x(1, 2, 3, t=[0, 1e-9, 2e-9])),
    ("id,0,100,200\na,1,2,3\n", {"layout": "rows", "time_unit": "ms", "variables": ["x"]},
     x(1, 2, 3, t=[0, 0.1, 0.2])),
    ("id,1700000000000,1700000000100\na,1,2\n", {"layout": "rows", "variables": ["x"]},
     "{}:1, column '1700000000000': 1700000000000 is too large for a time in seconds"),
    *((f"{name},x\n0,1\n1,2\n", {}, f"{{}}: no column is called time, t or timestamp, but {name!r} ")
      for name in ("Zeit", "t_ms", "ts", "clock", "sec", "utc")),
    ("latency_ms,x\n0,1\n1,2\n", ONLY_X, x(1, 2)),
    ("tUs,x\n0,1\n500000,2\n", {"time_column": "tUs"}, x(1, 2, t=[0, 0.5])),
    ("time_ms,x\n0,1\n1,2\n", {"time_column": "time_ms", "time_unit": "s"}, x(1, 2)),
    ("items,x\n0,1\n1,2\n", {"time_column": "items"}, x(1, 2)),
    ("t (fortnights),x\n0,1\n", {}, "{}: the times are in 'fortnights', which is not a unit of time"),
    ("t,x\n0,1\n", {"time_unit": "d"}, "time_unit must be one of ns, "),
    ("t,x\ns,m/s\n0,1\n1,2\n", {}, x(1, 2)),
    ("t;x\n[ms];[m/s]\n0;1\n1000;2\n", {}, x(1, 2)),
    ("made by a logger\non Monday\nt,x\n0,1\n1,2\n", {"skip_lines": 2}, x(1, 2)),
    ("made by a logger\nt,x\n0,1\n", {}, "{}:2: 2 cells, but the header has 1; quote a cell"),
    ("x\n5\n6\n", {}, x(5, 6)),
    ("x;y\n1;2\n3;4\n", ONLY_X, x(1, 3)),
    ('"t","x, or y"\n0,1\n1,2\n', {}, {"t": [0, 1], "x, or y": [1, 2]}),
    # ragged rows, quotes, blank lines
    ("t,x,y\n0,1,2\n1,2\n", ONLY_X, x(1, 2)),
    ("t,x,y\n0,1,2\n1\n", ONLY_X, "{}:3: 1 cell, but the header has 3; complete the line"),
    ("t,x\n0,1\n1,2,3\n", {}, "{}:3: 3 cells, but the header has 2; quote a cell that holds"),
    ("t,x\n\n0,1\n\n1,2\n", {}, x(1, 2)),
    ("\n\nt,x\n0,1\n1,2\n", {}, x(1, 2)),
    ("t;x\n0;1\n;\n1;2\n", {}, x(1, 2)),
    ("t,x\n0,1\n   \n1,2\n", {}, x(1, 2)),
    ('t,x,note\n0,1,"a\nb"\n1,2,\n', ONLY_X, x(1, 2)),
    ('t,x,note\n0,1,"a\nb"\n1,2,\n2,oops,\n', ONLY_X, "{}:5, column 'x': 'oops' is not a number"),
    ('t,x,note\n0,1,"he said ""hi"""\n1,2,\n', ONLY_X, x(1, 2)),
    ('t,x,note\n0,1,5" pipe\n1,2,\n', ONLY_X, x(1, 2)),
    ('t,x,note\n0,1,"open\n1,2,\n', ONLY_X, "{}:3: unexpected end of data; correct the quotes"),
    ('t,x,note\n0,1,"a"b\n1,2,\n', ONLY_X, "{}:2: ',' expected after '\"'; correct the quotes"),
    # missing cells, odd cells
    ("t,x\n0,1\n1,\n2,3\n", {}, x(1, nan, 3)),
    ("t,x\n0,1\n1,NaN\n2,n/a\n3,NULL\n4,NA\n", {}, x(1, nan, nan, nan, nan)),
    ("t,x\n0,1\n1,-\n2,--\n3,?\n", {}, x(1, nan, nan, nan)),
    ("t,x\n0,\n1,\n", {}, x(nan, nan)),
    ("t,x\n0,1\n1,ERR\n", {}, "{}:3, column 'x': 'ERR' is not a number"),
    ("t,x\n0,1\n1,inf\n", {}, "{}:3, column 'x': inf is not finite"),
    ("t,x\n0,1\n1,1e999\n", {}, "{}:3, column 'x': 1e999 is not finite"),
    ("t,x,y\n0,1,oops\n1,2,1e999\n", ONLY_X, x(1, 2)),
    ("t,x\n0,1\n1,12:30\n", {}, "{}:3, column 'x': '12:30' is not a number"),
    ("t,f\n0,true\n1,FALSE\n2,True\n", {}, {"t": [0, 1, 2], "f": [1, 0, 1]}),
    ("t,f\n0,on\n1,Off\n2,\n", {}, {"t": [0, 1, 2], "f": [1, 0, nan]}),
    ("t,f\n0,yes\n1,no\n", {}, {"t": [0, 1], "f": [1, 0]}),
    ("t,f\n0,true\n1,0\n", {}, {"t": [0, 1], "f": [1, 0]}),
    ("t,g\n0,P\n1,D\n2,\n3,P\n", {}, {"t": [0, 1, 2, 3], "g": [0, 1, nan, 0]}),
    ("t,g\n0,P\n1,D\n", ENUM, {"t": [0, 1], "g": [8, 7]}),
    ("t,g\n0,1\n1,2\n2,D\n", {}, "{}:4, column 'g': 'D' is not a number"),
    ("t,g\n0,1\n1,2\n2,D\n", ENUM, {"t": [0, 1, 2], "g": [8, 9, 7]}),
    ("t,g\n0,1\n1,2\n", {**ENUM, "coded": ["g"]}, {"t": [0, 1], "g": [1, 2]}),
    ("t,g\n0,1\n1,2\n", ENUM, {"t": [0, 1], "g": [8, 9]}),
    # times
    ("t,x\n0,1\n0.1,2\n0.1,3\n", {}, "{}:3: 'x' has several values at time 0.1; --repair-times"),
    ("t,x\n0,1\n0.1,2\n0.1,3\n", {"repair_times": True}, x(1, 3, t=[0, 0.1])),
    ("t,x\n0,1\n0,1\n1,2\n", {}, x(1, 2)),
    ("t,x,y\n0,1,\n0,,5\n1,2,\n", {}, {**x(1, 2), "y": [5, nan]}),
    ("t,x\n0,1\n2,3\n1,2\n", {}, "{}:4: the time goes from 2 to 1, but it must increase; --repair"),
    ("t,x\n0,1\n2,3\n1,2\n", {"repair_times": True}, x(1, 2, 3)),
    ("t,x\n0,1\n,2\n", {}, "{}:3: the row has no time"),
    ("t,x\n0,1\n1,2\n,\n", {}, x(1, 2)),
    ("t,x\n,\n,\n", {}, "{}: no row has a time"),
    ("t,x\n0,1\nsoon,2\n", {}, "{}:3, column 't': 'soon' is not a time"),
    ("t,x\n2024-05-01T12:00:00Z,1\n2024-05-01T12:00:00.5Z,2\n", {},
     x(1, 2, t=[1714564800, 1714564800.5])),
    ("t,x\n2024-05-01 12:00:00,1\n2024-05-01 12:00:01,2\n", {}, x(1, 2, t=[1714564800, 1714564801])),
    ("t,x\n2024-05-01 12:00:01,1\n2024-05-01 12:00:00.5,2\n", {},
     "{}:3: the time goes from 2024-05-01 12:00:01 to 2024-05-01 12:00:00.500000, but it must"),
    ("t,x\n23:59:59.9,1\n00:00:00.0,2\n", {},
     "{}:3: the time goes from 86399.9 to 0, but it must increase; if midnight lies between them"),
    *((f"t,x\n{t},1\n", {}, f"{{}}:2, column 't': '{t}' is not a time; write a number, 2024-05-31 14")
      for t in ("12:99:99", "12:60:00", "12:00:60", "12:00:60.5")),
    ("t,x\n24:10:00,1\n25:10:00,2\n", {}, x(1, 2, t=[87000, 90600])),  # hours since a start
    ("t,x\n23:59:59,1\n,\n2024-01-01 00:00:00,2\n", {},
     "{}:4, column 't': '2024-01-01 00:00:00' has a date, unlike the times above it; write all times"),
    ("t,x\n2024-01-01,1\n0:00:01,2\n2024-01-03,2\n", {}, "{}:3, column 't': '0:00:01' has no date,"),
    ("t,x\n20240101,1\n20240102,2\n20240103,3\n", {},
     '{}:2, column \'t\': 20240101 looks like a date; write 2024-01-01, or, if it counts seconds, '),
    ("t,x\n20240131,1\n20240132,2\n", {}, x(1, 2, t=[20240131, 20240132])),
    ("t,x\n20240101,1\n20240102.5,2\n", {}, x(1, 2, t=[20240101, 20240102.5])),
    ("t,x\n20240101,1\n20240102,2\n", {"time_unit": "s"}, x(1, 2, t=[20240101, 20240102])),
    ("t [s],x\n20240101,1\n20240102,2\n", {}, x(1, 2, t=[20240101, 20240102])),
    ("t;x\n12:00:00,5;1\n12:00:01,5;2\n", {}, x(1, 2, t=[43200.5, 43201.5])),
    ("t,x\n-5,1\n1e9,2\n", {}, x(1, 2, t=[-5, 1e9])),
    ("t,x\n5,1\n", {}, x(1, t=[5])),
    # times that float64 seconds since 1970 would round
    ("t [ns],x\n1700000000000000000,1\n1700000000000000100,2\n1700000000000000200,3\n", {},
     x(1, 2, 3, t=[0, 1e-7, 2e-7])),
    ("t [ns],x\n,\n1700000000000000000,1\nNA,\n1700000000000000100,2\n", {}, x(1, 2, t=[0, 1e-7])),
    ("t [us];x\n1700000000000000;1\n1700000000000001;2\n", {}, x(1, 2, t=[0, 1e-6])),
    ("t;x\n1700000000,0000000;1\n1700000000,0000005;2\n", {}, x(1, 2, t=[0, 5e-7])),
    ("t,x\n2024-05-01T12:00:00.0000000,1\n2024-05-01T12:00:00.0000005Z,2\n", {}, x(1, 2, t=[0, 5e-7])),
    ("t [ns],x\n1700000000000000100,1\n1700000000000000000,2\n", {},
     "{}:3: the time goes from 0 to -1e-07, but it must increase"),
    ("t [ns],x\n1700000000000000100,1\n1700000000000000100,2\n", {},
     "{}:2: 'x' has several values at time 2023-11-14 22:13:20; --repair-times"),
    ("t [ns],x\n1700000000000000000,1\n1700000000010000000,2\n", {},
     x(1, 2, t=[1.7e9, 1.70000000001e9])),
    ("t [ns],x\n0,1\n1700000000000000000,2\n1700000000000000100,3\n", {},
     "{}:4, column 't [ns]': the step from the time before is too small for a time so far from the"),
    ("t [ns],x\n0,1\n1700000000000000000,2\nNA,\n1700000000000000100,3\n", {},
     "{}:5, column 't [ns]': the step from the time before is too small for a time so far from the"),
    # units of times
    ("timestamp,x\n1700000000000,1\n1700000000100,2\n", {},
     "{}:2, column 'timestamp': 1700000000000 is too large for a time in seconds; if the times are ms"),
    ("t,x\n1700000000000000,1\n1700000000100000,2\n", {}, "if the times are us since 1970, "),
    ("t,x\n1700000000000000000,1\n1700000000100000000,2\n", {}, "if the times are ns since 1970, "),
    ("t,x\n1700000000000,1\n1700000001000,2\n", {"time_unit": "ms"}, x(1, 2, t=[1.7e9, 1.7e9 + 1])),
    ("t,x\n1700000000000,1\n1700000000001,2\n", {"time_unit": "s"}, x(1, 2, t=[1.7e12, 1.7e12 + 1])),
    *((f"t,x\n{t},1\n", {}, f"{{}}:2, column 't': '{t}' is not a time; write a number, 2024-05-31 14")
      for t in ("12:34", "2024/01/01 00:00:00", "01.02.2024 00:00", "1:00:00 PM")),
    # long tables
    ("time,variable,value\n0,x,1\n0,y,2\n1,x,3\n", {}, {"t": [0, 1], "x": [1, 3], "y": [2, nan]}),
    ("time;signal;value\n0;x;1,5\n1;x;2,5\n0;g;D\n", {"labels": {"g": {"D": 4}}},
     {"t": [0, 1], "x": [1.5, 2.5], "g": [4, nan]}),
    ("time,name,value\n0,x,1\n0,junk,???\n1,x,2\n1,junk,3\n", ONLY_X, x(1, 2)),
    ("time,name,value\n0,x,1\n1,x,oops\n", ONLY_X, "{}:3, column 'value': 'oops' is not a number"),
    ("time,name,value\n0,x,1\n0,y,9\n1,x,oops\n", ONLY_X, "{}:4, column 'value': 'oops' is not a"),
    ("time,name,value\n0,x,1\n", {"variables": ["z"]}, "{}: no variable 'z'; it has: x"),
    ("time,name,value\n1,x,1\n0,x,2\n", ONLY_X, "{}:3, 'x': the time goes from 1 to 0, but it must"),
    ("time,name,value\n0,x,1\n1,x,2\n", {"variables": ["y"]},
     "{}: no variable 'y'; it has: x; the table was read as long; if its columns are the"),
    ("time,name,value\n0,x,1\n1,x,2\n", {"variables": ["y"], "layout": "long"},
     "{}: no variable 'y'; it has: x"),
    ("time,name,value\n1,x,1\n0,x,2\n", {**ONLY_X, "repair_times": True}, x(2, 1)),
    ("name,value\nx,1\ny,5\nx,2\ny,6\n", {}, {**x(1, 2), "y": [5, 6]}),
    ("name,value\nx,1\ny,5\nx,2\n", {}, "{}: variable 'x' has 2 values, but 'y' has 1"),
    ("time,,value\n0,x,1\n", {"layout": "long"}, "{}: there is no column 'variable'"),
    ("time,name,value\n0,,1\n", {}, "{}:2, column 'name': the cell is empty"),
    # one row per log
    ("1,2,3\n", {"layout": "rows", "variables": ["x"]}, x(1, 2, 3)),
    ("x_0,x_1,x_2\n1,2,3\n", {"layout": "rows"}, x(1, 2, 3)),
    ("x_0,x_1,x_2\n1,2,3\n", {"layout": "rows", "variables": ["x_0"]}, "{}: no columns x_0_0, x_0_1, "),
    ("id,time,x\n7,0,1\n8,1,130\n9,2,3\n", {}, "{}: every row has an identifier of its own, so each"),
    ("id,x_0,x_1,x_2\na,1,2,\n", {"layout": "rows"}, x(1, 2)),
    ("id;x1;x2;y1;y2\na;1,5;2;5;6\n", {"layout": "rows"}, {**x(1.5, 2), "y": [5, 6]}),
    ("id,0.0,0.5,1.0\na,1,2,3\n", {"layout": "rows", "variables": ["x"]}, x(1, 2, 3, t=[0, 0.5, 1])),
    ("id,x_0,x_1\na,1,oops\n", {"layout": "rows"}, "{}:2, column 'x': 'oops' is not a number"),
    ("id,x_0,x_1\na,,\n", {"layout": "rows"}, "{}:2: the row has no value"),
    ("id,x_0,x_1\na,1,2\n", {"layout": "rows", "variables": ["z"]}, "{}: no columns z_0, z_1"),
    ("id,x\na,1\n", {"layout": "rows"}, "{}: the columns of samples, x_0, x_1, ..., are missing"),
    ("x_0,x_1,y_0\n1,2,3\n", {"layout": "rows"}, "{}: the columns of samples, x_0, x_1, ..., differ"),
    ("x_0,x_1\n", {"layout": "rows"}, "{}: there is a header but no row below it"),
    ("3\t1\t2\n", {"layout": "rows", "id_column": "1", "variables": ["x"]}, x(1, 2)),
    ("1,5;2;3,5\n", ROWS_OF_X, x(1.5, 2, 3.5)),
    ("id;0;0,1;0,2\na;1,5;2;300\n", ROWS_OF_X, x(1.5, 2, 300, t=[0, 0.1, 0.2])),
    ("id;0,5;0,6;0,7\na;1,5;2,5;3,5\n", ROWS_OF_X, x(1.5, 2.5, 3.5, t=[0.5, 0.6, 0.7])),
    ("name,0,0.5,1\na,1,2,3\n", ROWS_OF_X, x(1, 2, 3, t=[0, 0.5, 1])),
    ("car2,0,0.5\na,1,2\n", {**ROWS_OF_X, "id_column": "car2"}, x(1, 2, t=[0, 0.5])),
    ("id;0.5;0.6\na;1,5;2\n", ROWS_OF_X, "{}: column 'x' has decimal commas, but '0.5' has decimal"),
    ("id;0,5;0.6\na;1;2\n", ROWS_OF_X, "{}:1, column '0.6': '0.6' has a decimal point where other"),
    ("id,1,3,2\na,1,2,3\n", ROWS_OF_X, "{}:1: the times above the samples must increase, but 2 comes"),
    ("id,x_0,0.1,0.2\na,1,2,3\n", ROWS_OF_X, "{}:1: 'x_0' numbers a sample, but '0.1' is a time"),
    ("a,1,2,3\nb,1,2,300\n", ROWS_OF_X, "{}:1: are the numbers in this line times or samples?"),
    ("a;1,5;2;3\nb;1;2;300\n", ROWS_OF_X, "{}:1: are the numbers in this line times or samples?"),
    ("a,1,2\nb,1,2\n", {**ROWS_OF_X, "id_column": "1"}, "{}:1: are the numbers in this line times or"),
    ("id,x_0,x_1,x_3\na,1,2,3\n", {"layout": "rows"},
     "{}: there is no column 'x_2' between 'x_1' and 'x_3'"),
    ("id,x1,x2,x[3],x2\na,1,2,3,4\n", {"layout": "rows"}, "{}: 'x2' and 'x2' are the same sample"),
    ("0,5;1,5\n1;2\n", {}, "{}:1: a number, but the first line must name the columns; if each row"),
]  # fmt: skip


def content(log: Log) -> Answer:
    return {"t": log.times.tolist(), **{n: c.values.tolist() for n, c in log.channels.items()}}


@pytest.mark.parametrize("case", range(len(CASES)))
def test_odd_files(tmp_path: Path, case: int) -> None:
    data, options, expected = CASES[case]
    file = tmp_path / "odd.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    try:
        (log,) = read_logs(file, **options)
    except TraceError as error:
        assert isinstance(expected, str), error
        assert expected.format(file) in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 300 + len(str(file))
        return
    assert isinstance(expected, dict), content(log)
    found = content(log)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        assert log.channels[name].values.dtype == np.float64 if name != "t" else True


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text("t,x;|\t\n\r\"'0123456789.eE+-_ naifo()[]", max_size=60).map(str.encode),
    ),
    st.sampled_from([".csv", ".tsv", ".npz", ".mat"]),
    st.sampled_from(["auto", "wide", "long", "rows"]),
    st.booleans(),
)
def test_junk_is_read_or_named(
    tmp_path: Path, data: bytes, suffix: str, layout: Any, repair: bool
) -> None:
    file = tmp_path / f"junk{suffix}"
    file.write_bytes(data)
    for start in (b"", b"t,x\n", b"t;signal;value\n0;x;1\n"):
        file.write_bytes(start + data)
        try:
            logs = list(read_logs(file, layout=layout, repair_times=repair))
        except TraceError as error:
            assert str(file) in str(error)
            assert "\n" not in str(error)
        else:
            for log in logs:
                assert len(log.times) and (np.diff(log.times) > 0).all()
                assert not any(np.isinf(c.values).any() for c in log.channels.values())


def test_there_are_a_hundred_of_them() -> None:
    assert len(CASES) >= 100


def test_names_may_look_like_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for lines, labels, codes in (
        (("1,234", "1,235"), {"x": {"1,235": 7}}, [8, 7]),
        (("1.2.3", "1.2.4"), {}, [0, 1]),
        (("1.234.567", "1.234.568"), {}, [0, 1]),
        (("1.234,5", "P"), {}, [0, 1]),
    ):
        file.write_text("\n".join(["t;x", *(f"{i};{text}" for i, text in enumerate(lines))]))
        (log,) = read_logs(file, labels=labels)
        assert log.channels["x"].values.tolist() == codes


def test_units_stand_in_headers_or_below_them(tmp_path: Path) -> None:
    for text in ("t,a (km/h),b [°C],c (-),d\n0,1,2,3,4\n", "t,a,b,c,d\ns,km/h,°C,,\n0,1,2,3,4\n"):
        (tmp_path / "a.csv").write_text(text, encoding="utf-8")
        (log,) = read_logs(tmp_path / "a.csv")
        assert log.units == {"a": "km/h", "b": "°C"}
        assert list(log.channels) == ["a", "b", "c", "d"]


def test_a_column_may_be_named_with_its_unit(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("t,v (km/h),v (m/s),w (m)\n0,36,10,1\n")
    assert list(next(read_logs(file)).channels) == ["v (km/h)", "v (m/s)", "w"]
    for name in ("w", "w (m)", "v (m/s)"):
        assert list(next(read_logs(file, variables=[name])).channels) == [name]
    with pytest.raises(TraceError, match="no column 'v'"):
        next(read_logs(file, variables=["v"]))


def test_problems_elsewhere_in_thousands_of_columns(tmp_path: Path) -> None:
    names = ["t", "x", *(f"c{i}" for i in range(5000))]
    rows = [",".join([str(i), str(i * i), *["?!" for _ in range(5000)]]) for i in range(30)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *rows]))
    (log,) = read_logs(tmp_path / "a.csv", variables=["x"])
    assert log.channels["x"].values.tolist() == [i * i for i in range(30)]


def test_a_text_after_many_numbers_is_found(tmp_path: Path) -> None:
    """Columns are converted in blocks; what a column holds is decided by all of them."""
    rows = [f"{i},{i}," for i in range(9000)]
    rows[8500] = "8500,oops,"
    rows[8999] = "8999,8999,on"
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["t,x,f", *rows]))
    with pytest.raises(TraceError, match=r"a.csv:8502, column 'x': 'oops' is not a number"):
        next(read_logs(file))
    (log,) = read_logs(file, variables=["f"])
    assert log.channels["f"].kind == "flag"
    assert np.isnan(log.channels["f"].values[:-1]).all()
    rows[8500] = ""
    file.write_text("\n".join(["t,x,f", *rows]))
    (log,) = read_logs(file, variables=["x"])
    assert len(log.times) == 8999


def test_irregular_times_need_resampling(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("t,x\n0,0\n0.1,1\n0.205,2\n0.3,3\n0.5,5\n")
    (log,) = read_logs(file)
    with pytest.raises(TraceError) as caught:
        resample(log)
    assert str(caught.value) == (
        f"{file}:6: the time goes from 0.3 to 0.5, but the usual step is 0.1; put the log on a grid, "
        "as with --resample 0.1"
    )
    (tmp_path / "b.csv").write_text("t,x\n0,0\n0.1,1\n0.3,3\n")
    with pytest.raises(TraceError, match=r"the usual step is 0\.1; .* as with --resample 0\.1$"):
        resample(next(read_logs(tmp_path / "b.csv")))
    assert resample(log, 0.1).values[0].tolist() == pytest.approx([0, 1, 2 - 5 / 105, 3, 4, 5])
    file.write_text("x\n0\n1\n")
    (log,) = read_logs(file)
    assert resample(log).dt is None
    with pytest.raises(TraceError, match=r"there are no times, .* --time-column"):
        resample(log, 0.1)


def test_missing_cells_need_an_option(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("t,x\n0,0\n1,\n2,4\n3,\n")
    (log,) = read_logs(file)
    with pytest.raises(TraceError, match=r"a.csv:3, channel 'x': no value; .*--missing hold"):
        resample(log)
    held = resample(log, missing="hold")
    assert held.values[0].tolist() == [0, 0, 4, 4]
    assert str(held.report[0]) == "x: 2 samples made up (1 s, 3 s)"
    between = resample(log, missing="interpolate")
    np.testing.assert_array_equal(between.values[0], [0, 2, 4, nan])
    assert str(between.report[0]) == "x: 1 sample made up (1 s), 1 sample unknown (3 s)"
    with pytest.raises(TraceError, match="--missing"):
        resample(log, 0.5, missing="error")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0}, "positive number of seconds"),
        ({"dt": nan}, "positive number of seconds"),
        ({"dt": 1e-9}, "makes 1,000,000,000 samples per channel; take a longer one"),
        ({"missing": "drop"}, 'missing must be "hold"'),
        ({"max_gap": -1}, "max_gap must be"),
        ({"hold": ["y"]}, "no channel 'y' to hold"),
    ],
)
def test_bad_options_of_resample(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.csv").write_text("t,x\n0,0\n1,1\n")
    (log,) = read_logs(tmp_path / "a.csv")
    with pytest.raises(TraceError, match=message):
        resample(log, **options)
