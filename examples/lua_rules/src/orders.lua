-- Rules for orders: how much an order is worth, and whether it is suspicious.

local function line_total(line)
  local total = line.price * line.count
  if line.count > 10 then
    total = total * 0.9
  end
  return total
end

local function order_total(order)
  local total, lines = 0, order.lines
  for i = 1, #lines do
    total = total + line_total(lines[i])
  end
  return total
end

local function letters_in_common(one, other)
  local common, ones, others = 0, {one:byte(1, -1)}, {other:byte(1, -1)}
  for i = 1, #ones do
    for j = 1, #others do
      if ones[i] == others[j] then
        common = common + 1
      end
    end
  end
  return common
end

local function is_suspicious(order)
  local score = letters_in_common(order.name, order.city)
  if score > 20 then
    error("too alike")
  end
  return fingerprint(order.name) % 7 == 0
end

-- The application calls this for each order.
function judge(order)
  local total = order_total(order)
  local succeeded, suspicious = pcall(is_suspicious, order)
  if not succeeded or suspicious then
    return -total
  end
  return total
end

-- The code below runs once, when the script is loaded.
limits = {}
for i = 1, 100 do
  limits[i] = i * i
end
