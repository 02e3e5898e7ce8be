PRAGMA application_id = 1752133221;
PRAGMA user_version = 1;
CREATE TABLE chain (
    id   INTEGER PRIMARY KEY,  -- 1: what was recorded here; others came by import
    name TEXT NOT NULL UNIQUE CHECK (length(name) = 32)
) STRICT;
CREATE TABLE record (
    id       INTEGER PRIMARY KEY,  -- within this file
    chain    INTEGER NOT NULL REFERENCES chain,
    number   INTEGER NOT NULL CHECK (number > 0),  -- within its chain
    at       INTEGER NOT NULL,  -- milliseconds since 1970
    kind     TEXT NOT NULL CHECK (kind IN ('build', 'machine', 'model', 'recipe', 'run', 'sample', 'check', 'verdict', 'decision',
                                           'note', 'outcome', 'end')),
    run      INTEGER CHECK (run > 0),  -- the number of the run that it belongs to
    name     TEXT,  -- the series of a sample, the kind of a run, the hash of a build, machine, model or recipe
    value    REAL,  -- of a sample
    body     TEXT NOT NULL,  -- a JSON object
    previous TEXT NOT NULL CHECK (length(previous) = 64),  -- the hash of the record before in its chain
    hash     TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;
CREATE UNIQUE INDEX record_number ON record (chain, number);
CREATE INDEX record_hash ON record (hash) WHERE kind = 'run';
CREATE INDEX record_kind ON record (kind, at) WHERE kind <> 'sample';
CREATE INDEX record_run ON record (chain, run, kind) WHERE run IS NOT NULL;
CREATE INDEX record_series ON record (name, chain, run, value) WHERE kind = 'sample';
CREATE UNIQUE INDEX record_identity ON record (name, kind, chain) WHERE kind IN ('build', 'machine', 'model', 'recipe');
CREATE TRIGGER record_no_update BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
CREATE TRIGGER record_no_delete BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
CREATE TRIGGER record_no_replace BEFORE INSERT ON record WHEN EXISTS (SELECT 1 FROM record WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM record WHERE chain = NEW.chain AND number = NEW.number)
    OR EXISTS (SELECT 1 FROM record WHERE name = NEW.name AND kind = NEW.kind AND chain = NEW.chain AND
        kind IN ('build', 'machine', 'model', 'recipe'))
    BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
CREATE TRIGGER chain_no_update BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
CREATE TRIGGER chain_no_delete BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
CREATE TRIGGER chain_no_replace BEFORE INSERT ON chain WHEN EXISTS (SELECT 1 FROM chain WHERE id = NEW.id OR name = NEW.name)
    BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;
INSERT INTO chain VALUES (1, '0123456789abcdef0123456789abcdef');
INSERT INTO record VALUES (1, 1, 1, 1764504000001, 'model', NULL, '27a3e168ed7d503c0dfc67d1e4cbf7b6ad9e2459ceae681122e5de7cfb7ab098', NULL, '{"name":"tiny","sha256":"none"}', '0000000000000000000000000000000000000000000000000000000000000000', '4d4990f938e2cddd9f9df5fc1471338915444b5243b8e4e3a22f2cc513fb7834');
INSERT INTO record VALUES (2, 1, 2, 1764504000002, 'run', NULL, 'bench', NULL, '{"command":"hone bench","model":"27a3e168ed7d503c0dfc67d1e4cbf7b6ad9e2459ceae681122e5de7cfb7ab098"}', '4d4990f938e2cddd9f9df5fc1471338915444b5243b8e4e3a22f2cc513fb7834', 'bf20080d13efa297e486ee8ca05516d81d5fc5f18f538b4ed6ad9e96892af726');
INSERT INTO record VALUES (3, 1, 3, 1764504000003, 'sample', 2, 'tg1 t/s', 100.5, '{}', 'bf20080d13efa297e486ee8ca05516d81d5fc5f18f538b4ed6ad9e96892af726', '36586bc3ce54d792969adb0fd074533d993820dfabdb1ce312b200b853b7a179');
INSERT INTO record VALUES (4, 1, 4, 1764504000004, 'end', 2, NULL, NULL, '{"status":"done"}', '36586bc3ce54d792969adb0fd074533d993820dfabdb1ce312b200b853b7a179', '2ed45332e6c34e6cbae64baa2c23b6036795e9837373c6c3c06aa43d21217c50');
