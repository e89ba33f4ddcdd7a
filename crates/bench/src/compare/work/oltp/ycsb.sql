-- YCSB's table: ten fields of 100 bytes. A tenth of pgbench's rows, for each is about ten times as long.
CREATE TABLE usertable (k int PRIMARY KEY, updates int NOT NULL DEFAULT 0, f0 text, f1 text, f2 text, f3 text, f4 text, f5 text, f6 text,
  f7 text, f8 text, f9 text);
INSERT INTO usertable SELECT k, 0, f, f, f, f, f, f, f, f, f, f
  FROM (SELECT k, left(repeat(md5(k::text), 4), 100) f FROM generate_series(1, :scale * 10000) k) rows;
