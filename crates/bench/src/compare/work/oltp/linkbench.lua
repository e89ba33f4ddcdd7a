-- A load like LinkBench's (Armstrong, Ponnekanti, Borthakur and Callaghan, SIGMOD 2013): nodes and links of a social graph, its
-- operations by their shares there (table 3), a few nodes much oftener than the others. Run by sysbench.

sysbench.cmdline.options = {
  table_size = {"Nodes at first", 10000},
  tables = {"Not used", 1},
}

-- Links of a node at first, and bytes of what nodes and links hold.
local LINKS, NODE_BYTES, LINK_BYTES = 4, 128, 8
local TYPE = 123456789

local connection, nodes

local function open()
  connection = sysbench.sql.driver():connect()
  nodes = sysbench.opt.table_size
end

function thread_init() open() end
function thread_done() connection:disconnect() end

local function text(bytes) return sysbench.rand.string(string.rep("@", bytes)) end
local function node() return sysbench.rand.pareto(1, nodes) end

function prepare()
  open()
  connection:query([[CREATE TABLE nodetable (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, type INT UNSIGNED NOT NULL,
    version BIGINT UNSIGNED NOT NULL, time INT UNSIGNED NOT NULL, data MEDIUMBLOB NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB]])
  connection:query([[CREATE TABLE linktable (id1 BIGINT UNSIGNED NOT NULL, id2 BIGINT UNSIGNED NOT NULL,
    link_type BIGINT UNSIGNED NOT NULL, visibility TINYINT NOT NULL, data VARCHAR(255) NOT NULL, time BIGINT UNSIGNED NOT NULL,
    version INT UNSIGNED NOT NULL, PRIMARY KEY (link_type, id1, id2),
    KEY id1_type (id1, link_type, visibility, time, id2, version, data)) ENGINE=InnoDB]])
  connection:query([[CREATE TABLE counttable (id BIGINT UNSIGNED NOT NULL, link_type BIGINT UNSIGNED NOT NULL,
    count INT UNSIGNED NOT NULL, time BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (id, link_type)) ENGINE=InnoDB]])
  connection:bulk_insert_init("INSERT INTO nodetable (type, version, time, data) VALUES")
  for _ = 1, nodes do
    connection:bulk_insert_next(string.format("(2048, 1, 0, '%s')", text(NODE_BYTES)))
  end
  connection:bulk_insert_done()
  connection:bulk_insert_init("INSERT INTO linktable VALUES")
  for id = 1, nodes do
    for link = 1, LINKS do
      local to = (id + link * 7919) % nodes + 1
      connection:bulk_insert_next(string.format("(%d, %d, %d, 1, '%s', %d, 0)", id, to, TYPE, text(LINK_BYTES), link))
    end
  end
  connection:bulk_insert_done()
  connection:query("INSERT INTO counttable SELECT id1, link_type, COUNT(*), 0, 0 FROM linktable GROUP BY id1, link_type")
end

-- What a change of a link does to its count, in one transaction. A link that was there with this visibility already counts no more.
local function change_link(id1, id2, visible)
  connection:query("BEGIN")
  -- The count first: whoever changes links of a node comes one after the other.
  connection:query(string.format(
    "INSERT INTO counttable VALUES (%d, %d, 0, 0, 0) ON DUPLICATE KEY UPDATE version = version + 1", id1, TYPE))
  local was = connection:query_row(string.format(
    "SELECT visibility FROM linktable WHERE link_type = %d AND id1 = %d AND id2 = %d", TYPE, id1, id2))
  local now = visible and 1 or 0
  if was == nil and visible then
    connection:query(string.format("INSERT INTO linktable VALUES (%d, %d, %d, 1, '%s', %d, 0)",
      id1, id2, TYPE, text(LINK_BYTES), os.time()))
  elseif was ~= nil then
    connection:query(string.format("UPDATE linktable SET visibility = %d, data = '%s', time = %d, version = version + 1 " ..
      "WHERE link_type = %d AND id1 = %d AND id2 = %d", now, text(LINK_BYTES), os.time(), TYPE, id1, id2))
  end
  local more = now - (tonumber(was) or 0)
  if more ~= 0 then
    connection:query(string.format("UPDATE counttable SET count = count + %d WHERE id = %d AND link_type = %d", more, id1, TYPE))
  end
  connection:query("COMMIT")
end

local function any_link() local id = node(); return id, (id + sysbench.rand.uniform(1, 2 * LINKS) * 7919) % nodes + 1 end

-- Each with its share, in thousandths.
local OPERATIONS = {
  {507, function() -- links of a node, the newest first
    connection:query(string.format("SELECT id1, id2, link_type, visibility, data, version, time FROM linktable " ..
      "WHERE id1 = %d AND link_type = %d AND visibility = 1 AND time >= 0 ORDER BY time DESC LIMIT 10000", node(), TYPE))
  end},
  {129, function() connection:query(string.format("SELECT id, type, version, time, data FROM nodetable WHERE id = %d", node())) end},
  {90, function() local a, b = any_link(); change_link(a, b, true) end},
  {80, function() local id = node(); change_link(id, (id + 7919) % nodes + 1, true) end},
  {74, function()
    connection:query(string.format("UPDATE nodetable SET version = version + 1, time = %d, data = '%s' WHERE id = %d",
      os.time(), text(NODE_BYTES), node()))
  end},
  {49, function() connection:query(string.format("SELECT count FROM counttable WHERE id = %d AND link_type = %d", node(), TYPE)) end},
  {30, function() local a, b = any_link(); change_link(a, b, false) end},
  {26, function()
    connection:query(string.format("INSERT INTO nodetable (type, version, time, data) VALUES (2048, 1, %d, '%s')",
      os.time(), text(NODE_BYTES)))
  end},
  {10, function() connection:query(string.format("DELETE FROM nodetable WHERE id = %d", sysbench.rand.uniform(1, nodes))) end},
  {5, function()
    local id = node()
    connection:query(string.format("SELECT id1, id2, visibility, data, time, version FROM linktable " ..
      "WHERE id1 = %d AND link_type = %d AND id2 IN (%d, %d)", id, TYPE, (id + 7919) % nodes + 1, (id + 15838) % nodes + 1))
  end},
}

function event()
  local left = sysbench.rand.uniform(1, 1000)
  for _, operation in ipairs(OPERATIONS) do
    left = left - operation[1]
    if left <= 0 then return operation[2]() end
  end
end
