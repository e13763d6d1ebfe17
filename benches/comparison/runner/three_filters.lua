-- Remembers items in three filters, each with the items of half a window. This part starts both scripts: if the newest
-- slice has no filter, it creates one, and deletes the oldest. KEYS has the filters of four slices, the newest first;
-- the fourth is too old.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('UNLINK', KEYS[4])
  redis.call('BF.RESERVE', KEYS[1], ERROR_RATE, CAPACITY)
end
---
-- Adds an item to the newest filter, unless it is in one of them.
for slice = 1, 3 do
  if redis.call('BF.EXISTS', KEYS[slice], ARGV[1]) == 1 then return 0 end
end
return redis.call('BF.ADD', KEYS[1], ARGV[1])
---
-- Adds many items in the same way. The reply of BF.MADD shows which of them were new to the newest filter.
local newer = redis.call('BF.MEXISTS', KEYS[2], unpack(ARGV))
local oldest = redis.call('BF.MEXISTS', KEYS[3], unpack(ARGV))
local replies, absent, places = {}, {}, {}
for place, item in ipairs(ARGV) do
  replies[place] = 0
  if newer[place] == 0 and oldest[place] == 0 then
    absent[#absent + 1] = item
    places[#places + 1] = place
  end
end
if #absent > 0 then
  for index, added in ipairs(redis.call('BF.MADD', KEYS[1], unpack(absent))) do
    replies[places[index]] = added
  end
end
return replies
