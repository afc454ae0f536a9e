-- Changes the field `full` of `meta` from `before`, by `news` where it is set. Returns whether it is set.
local function put_full(full, before, meta, news)
  if full and full ~= before then
    news[#news + 1], news[#news + 2] = 'full', full
  elseif before and not full then
    redis.call('HDEL', meta, 'full')
  end
  return full ~= nil
end
