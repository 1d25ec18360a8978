-- Decides batches of token buckets, one after the other; in each, all are charged or
-- none is. It neither multiplies nor divides but for the time to live: the caller
-- has worked out how long units last.
--
-- KEYS[i] and ARGV[i] are a check. ARGV[i] is a kind, a mode and whether more of its
-- batch follows ("," or "."), one character each, then numbers. The modes are
--   0 decided, 1 and its repair stored, 2 and charged if the batch is allowed,
--   3 to 5 the same without a vote.
-- A state is its arrival time in microseconds, or "us num den" where that is no whole
-- number. The reply is lines: the time, then for each batch 1 or 0, and the states
-- that its checks found. The caller computes the rest from them.
local time, margin = redis.call('TIME'), 2000
local now = time[1] * 1000000 + time[2]
local call, pcall, unpack, byte, match, ceil = redis.call, redis.pcall, struct.unpack, string.byte, string.match, math.ceil
local out, lines = {time[1] .. ' ' .. time[2]}, 1
local us, num, den, fits, repaired = {}, {}, {}, {}, {}
local addUs, addNum, raws = {}, {}, {}
local i, count = 0, #KEYS

while i < count do
  local first, allowed, bad = i + 1, true, false
  local last
  repeat
    i = i + 1
    local _, mode
    _, mode, last = byte(ARGV[i], 1, 3)
    local n, iu, ic, nu, nc, fu, fc, wu, wc = unpack('<I4dI4dI4dI4dI4', ARGV[i], 4)
    local raw, u, c, cut = pcall('GET', KEYS[i]), now, 0, false
    if raw then
      local at = tonumber(raw)
      if not at then
        local a, b, d
        if type(raw) == 'string' then a, b, d = match(raw, '^(%d+) (%d+) (%d+)$') end
        if a then
          at, c = tonumber(a), tonumber(b)
          if tonumber(d) ~= n then at, c = at + 1, 0 end
        else
          bad, at = true, now
        end
      end
      if at < now then
        c = 0
      else
        u = at
        local latest = now + wu
        if u > latest or (u == latest and c > wc) then u, c, cut = latest, wc, true end
      end
    end
    local xu, xc = u + nu, c + nc
    if xc >= n then xu, xc = xu + 1, xc - n end
    local limit = now + fu
    local ok = xu < limit or (xu == limit and xc <= fc)
    if not ok and mode < 51 then allowed = false end
    us[i], num[i], den[i], addUs[i], addNum[i] = u, c, n, iu, ic
    fits[i], repaired[i], raws[i] = ok, cut, raw
  until last == 46

  lines = lines + 1
  if bad then
    out[lines] = 'state'
  else
    out[lines] = allowed and '1' or '0'
    for j = first, i do
      local mode = byte(ARGV[j], 2)
      local charge = allowed and fits[j] and (mode == 50 or mode == 53)
      if charge or (repaired[j] and mode ~= 48 and mode ~= 51) then
        local u, c, n = us[j], num[j], den[j]
        if charge then
          u, c = u + addUs[j], c + addNum[j]
          if c >= n then u, c = u + 1, c - n end
        end
        local value = u
        if c > 0 then value = string.format('%.0f %.0f %.0f', u, c, n) end
        call('SET', KEYS[j], value, 'PX', ceil((u - now) / 1000) + margin)
      end
      lines = lines + 1
      out[lines] = raws[j] or ''
    end
  end
end
return table.concat(out, '\n')
