-- The tables and transactions of TPC-C at a tenth of its size, :scale warehouses; all order lines are from the home warehouse.
-- Rows are locked in the order of their keys, so no transaction has to be repeated.
CREATE TABLE warehouse (w_id int PRIMARY KEY, ytd numeric(12,2) NOT NULL DEFAULT 0, about char(80) NOT NULL DEFAULT '');
CREATE TABLE district (w_id int, d_id int, next_order int NOT NULL DEFAULT 1, ytd numeric(12,2) NOT NULL DEFAULT 0,
  about char(80) NOT NULL DEFAULT '', PRIMARY KEY (w_id, d_id));
CREATE TABLE customer (w_id int, d_id int, c_id int, balance numeric(12,2) NOT NULL DEFAULT 0, payments int NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, about text NOT NULL, PRIMARY KEY (w_id, d_id, c_id));
CREATE TABLE history (w_id int, d_id int, c_id int, paid timestamp NOT NULL DEFAULT now(), amount numeric(6,2), about char(24));
CREATE TABLE item (i_id int PRIMARY KEY, price numeric(5,2) NOT NULL, about char(74) NOT NULL DEFAULT '');
CREATE TABLE stock (w_id int, i_id int, quantity int NOT NULL, ytd int NOT NULL DEFAULT 0, orders int NOT NULL DEFAULT 0,
  about text NOT NULL, PRIMARY KEY (w_id, i_id));
CREATE TABLE orders (w_id int, d_id int, o_id int, c_id int NOT NULL, carrier int, lines int NOT NULL,
  entered timestamp NOT NULL DEFAULT now(), PRIMARY KEY (w_id, d_id, o_id));
CREATE TABLE new_order (w_id int, d_id int, o_id int, PRIMARY KEY (w_id, d_id, o_id));
CREATE TABLE order_line (w_id int, d_id int, o_id int, line int, i_id int NOT NULL, quantity int NOT NULL, amount numeric(6,2) NOT NULL,
  delivered timestamp, about char(24) NOT NULL DEFAULT '', PRIMARY KEY (w_id, d_id, o_id, line));

INSERT INTO warehouse SELECT w FROM generate_series(1, :scale) w;
INSERT INTO district SELECT w, d FROM generate_series(1, :scale) w, generate_series(1, 10) d;
INSERT INTO customer SELECT w, d, c, 0, 0, 0, repeat(md5((w * 7919 + d * 104729 + c)::text), 12)
  FROM generate_series(1, :scale) w, generate_series(1, 10) d, generate_series(1, 300) c;
INSERT INTO item SELECT i, 1 + i % 99 FROM generate_series(1, 10000) i;
INSERT INTO stock SELECT w, i, 50, 0, 0, repeat(md5((w * 7919 + i)::text), 8)
  FROM generate_series(1, :scale) w, generate_series(1, 10000) i;

CREATE FUNCTION order_goods(w int, d int, c int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  o int;
  number int := 0;
  goods record;
BEGIN
  UPDATE district SET next_order = next_order + 1 WHERE w_id = w AND d_id = d RETURNING next_order - 1 INTO o;
  INSERT INTO orders VALUES (w, d, o, c, NULL, n);
  INSERT INTO new_order VALUES (w, d, o);
  FOR goods IN
    SELECT i.i_id, i.price FROM item i
    WHERE i.i_id IN (SELECT 1 + floor(random() * 10000)::int FROM generate_series(1, n)) ORDER BY i.i_id
  LOOP
    number := number + 1;
    UPDATE stock SET quantity = CASE WHEN quantity > 15 THEN quantity - 5 ELSE quantity + 86 END, ytd = ytd + 5, orders = orders + 1
      WHERE w_id = w AND i_id = goods.i_id;
    INSERT INTO order_line VALUES (w, d, o, number, goods.i_id, 5, goods.price * 5);
  END LOOP;
  RETURN o;
END $$;

CREATE FUNCTION pay(w int, d int, c int, amount numeric) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE warehouse SET ytd = ytd + amount WHERE w_id = w;
  UPDATE district SET ytd = ytd + amount WHERE w_id = w AND d_id = d;
  UPDATE customer SET balance = balance - amount, payments = payments + 1 WHERE w_id = w AND d_id = d AND c_id = c;
  INSERT INTO history VALUES (w, d, c, now(), amount, 'paid');
END $$;

CREATE FUNCTION deliver(w int, by int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  o int;
  c int;
BEGIN
  FOR d IN 1..10 LOOP
    SELECT o_id INTO o FROM new_order WHERE w_id = w AND d_id = d ORDER BY o_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    DELETE FROM new_order WHERE w_id = w AND d_id = d AND o_id = o;
    UPDATE orders SET carrier = by WHERE w_id = w AND d_id = d AND o_id = o RETURNING c_id INTO c;
    UPDATE order_line SET delivered = now() WHERE w_id = w AND d_id = d AND o_id = o;
    UPDATE customer SET deliveries = deliveries + 1, balance = balance +
      (SELECT coalesce(sum(amount), 0) FROM order_line WHERE w_id = w AND d_id = d AND o_id = o)
      WHERE w_id = w AND d_id = d AND c_id = c;
  END LOOP;
END $$;
