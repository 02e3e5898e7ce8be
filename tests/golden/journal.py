#!/usr/bin/env python3
"""Writes journal_v1.sql: a journal of version 1, made without hone: its tables as that version had them, and four records whose lines and hashes
come from Python's own JSON and SHA-256. The tables are frozen here: what hone makes today may differ, what it made then may not."""
import hashlib
import json
import re
import sys

source = open(sys.argv[1] if len(sys.argv) > 1 else "lab/journal_schema.c", encoding="utf-8").read()
script = re.search(r"version_1\[\] =(.*?);\n\n", source, re.S).group(1)
schema = "".join(json.loads('"' + s + '"') for s in re.findall(r'"((?:[^"\\]|\\.)*)"', script))
schema = schema.replace("lower(hex(randomblob(16)))", "'0123456789abcdef0123456789abcdef'")
chain = "0123456789abcdef0123456789abcdef"
previous = "0" * 64
model = json.dumps({"name": "tiny", "sha256": "none"}, separators=(",", ":"))
name = hashlib.sha256(model.encode()).hexdigest()
records = [
    ("model", None, name, None, model),
    ("run", None, "bench", None, json.dumps({"command": "hone bench", "model": name}, separators=(",", ":"))),
    ("sample", 2, "tg1 t/s", 100.5, "{}"),
    ("end", 2, None, None, '{"status":"done"}'),
]


def sql(x):
    return "NULL" if x is None else "'%s'" % x.replace("'", "''") if isinstance(x, str) else repr(x)


print("PRAGMA application_id = 1752133221;\nPRAGMA user_version = 1;\n" + schema, end="")
for number, (kind, run, series, value, body) in enumerate(records, 1):
    record = {"chain": chain, "number": number, "at": 1764504000000 + number, "kind": kind}
    if run is not None:
        record["run"] = run
    if series is not None:
        record["name"] = series
    if value is not None:
        record["value"] = value
    record["body"] = json.loads(body)
    record["previous"] = previous
    line = json.dumps(record, separators=(",", ":"))
    digest = hashlib.sha256(line.encode()).hexdigest()
    row = (number, 1, number, record["at"], kind, run, series, value, body, previous, digest)
    print("INSERT INTO record VALUES (%s);" % ", ".join(sql(x) for x in row))
    previous = digest
