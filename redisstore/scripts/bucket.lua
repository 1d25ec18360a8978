-- Decides batches of token buckets, one after the other; in each, all are charged or
-- none is. It neither multiplies nor divides but for the time to live: the caller
-- has worked out how long units last.
--
-- KEYS[i] and ARGV[i] are a check. ARGV[i] is a kind, a mode and whether more of its
-- batch follows ("," or "."), one character each, then numbers. The modes are
--   0 decided, 1 and its repair stored, 2 and charged if the batch is allowed,
--   3 to 5 the same without a vote.
-- A state is as states.lua says. The reply is lines: the time, then for each batch 1 or 0, and the states
-- that its checks found. The caller computes the rest from them.
local time, margin = redis.call('TIME'), 2000
local now = time[1] * 1000000 + time[2]
local call, pcall, unpack, byte, match, ceil = redis.call, redis.pcall, struct.unpack, string.byte, string.match, math.ceil
local sub, format, frexp, min, max = string.sub, string.format, math.frexp, math.min, math.max

-- look returns the state that is stored for a check, "state" if that is none of these;
-- the arrival time as it counts now, and whether a repair has cut it; the same with the
-- cost charged; the denominator, whether the check fits, and the width and the wider time
-- to store.
local function look(key, arg)
  local n, iu, ic, nu, nc, fu, fc, wu, wc = unpack('<I4dI4dI4dI4dI4', arg, 4)
  local raw, u, c, cut, bad, wider = pcall('GET', key), now, 0, false, nil, nil
  local _, width = frexp(wu)
  if raw then
    local stored = type(raw) == 'string' and tonumber(sub(raw, -2))
    local text = stored and sub(raw, 1, -3) or ''
    stored = min(52, stored or 0)
    local at = tonumber(text)
    if not at then
      local a, b, d = match(text, '^(%d+) (%d+) (%d+)$')
      if not a then a, b, d, wider = match(text, '^(%d+) (%d+) (%d+) (%d+)$') end
      if a then
        at, c = tonumber(a), tonumber(b)
        if tonumber(d) ~= n then at, c = at + 1, 0 end
      else
        bad, at = 'state', now
      end
      if wider then
        wider = tonumber(wider)
        if width >= stored then
          if wider > at then at, c = wider, 0 end
          wider = nil
        end
        raw = format('%.0f %.0f %.0f00', at, c, n)
      end
    end
    if at < now then
      c = 0
    else
      u = at
      local latest = now + wu
      if u > latest or (u == latest and c > wc) then
        if stored > width then wider = min(max(wider or 0, u + 1), now + 2 ^ stored) end
        u, c, cut = latest, wc, true
      end
    end
    if wider then width = stored end
  end
  local xu, xc, limit = u + nu, c + nc, now + fu
  if xc >= n then xu, xc = xu + 1, xc - n end
  iu, ic = u + iu, c + ic
  if ic >= n then iu, ic = iu + 1, ic - n end
  return raw, bad, u, c, cut, iu, ic, n, xu < limit or (xu == limit and xc <= fc), width, wider
end

local function keep(key, u, c, n, width, wider)
  local value, ends = nil, u
  if wider and wider > u then
    value, ends = format('%.0f %.0f %.0f %.0f%02d', u, c, n, wider, width), wider
  elseif c > 0 then
    value = format('%.0f %.0f %.0f%02d', u, c, n, width)
  else
    value = format('%.0f%02d', u, width)
  end
  call('SET', key, value, 'PX', ceil((ends - now) / 1000) + margin)
end

local count = #KEYS
if count == 1 then -- most often: without tables
  local _, mode = byte(ARGV[1], 1, 2)
  local raw, bad, u, c, cut, chargedU, chargedC, n, fits, width, wider = look(KEYS[1], ARGV[1])
  local head = time[1] .. ' ' .. time[2]
  if bad then return head .. '\n' .. bad end
  if fits and (mode == 50 or mode == 53) then
    keep(KEYS[1], chargedU, chargedC, n, width, wider and wider + chargedU - u + 1)
  elseif cut and mode ~= 48 and mode ~= 51 then
    keep(KEYS[1], u, c, n, width, wider)
  end
  return head .. ((fits or mode >= 51) and '\n1\n' or '\n0\n') .. (raw or '')
end

local out, lines, i = {time[1] .. ' ' .. time[2]}, 1, 0
local us, num, den, fits, repaired = {}, {}, {}, {}, {}
local chargedUs, chargedNum, raws, widths, widers = {}, {}, {}, {}, {}
while i < count do
  local first, allowed, bad = i + 1, true, nil
  local last
  repeat
    i = i + 1
    local _, mode, wrong
    _, mode, last = byte(ARGV[i], 1, 3)
    raws[i], wrong, us[i], num[i], repaired[i], chargedUs[i], chargedNum[i], den[i], fits[i], widths[i], widers[i] = look(KEYS[i], ARGV[i])
    bad = bad or wrong
    if not fits[i] and mode < 51 then allowed = false end
  until last == 46

  lines = lines + 1
  if bad then
    out[lines] = bad
  else
    out[lines] = allowed and '1' or '0'
    for j = first, i do
      local mode = byte(ARGV[j], 2)
      if allowed and fits[j] and (mode == 50 or mode == 53) then
        keep(KEYS[j], chargedUs[j], chargedNum[j], den[j], widths[j], widers[j] and widers[j] + chargedUs[j] - us[j] + 1)
      elseif repaired[j] and mode ~= 48 and mode ~= 51 then
        keep(KEYS[j], us[j], num[j], den[j], widths[j], widers[j])
      end
      lines = lines + 1
      out[lines] = raws[j] or ''
    end
  end
end
return table.concat(out, '\n')
