-- Decides batches of token buckets, one after the other; in each, all are charged or
-- none is. It neither multiplies nor divides but for the time to live: the caller
-- has worked out how long units last.
--
-- KEYS are the keys, each once. ARGV are what is asked of keys, each once: a kind and a
-- mode, one character each, then numbers. The modes are
--   0 decided, 1 and its repair stored, 2 and charged if the batch is allowed,
--   3 to 5 the same without a vote.
-- The last of ARGV is the plan, five bytes for each check: where its key is and what is
-- asked of it, two bytes each, and a number: 1 for the last check of its batch, and 2
-- more for a key that other batches have too. A single ARGV is asked of a single key.
--
-- A state is as states.lua says. The reply is lines: the time, then for each batch 1 or 0, and the states
-- that its checks found, or "state" alone if one is none. The caller computes the rest from them.
--
-- All is in one loop, without functions: to make them costs more than a check.
local time, margin = redis.call('TIME'), 2000
local now = time[1] * 1000000 + time[2]
local call, pcall, byte, sub, format = redis.call, redis.pcall, string.byte, string.sub, string.format
local keys, args = KEYS, ARGV
local plan = args[2] and args[#args]

-- What was asked last: its place, the denominator, how long the cost, the cost and the
-- reserve, the burst and the largest debt last, the last two as times; the width.
local asked, mode, n, iu, ic, nu, nc, fu, fc, wu, wc, width, _

local out, lines = {}, 0
local saved, before = {}, 0 -- the checks of the batch but the last
local denied, bad
local last, px -- a time to live, and its text

-- Of keys that several batches have: what is stored when the script ends.
local raws, us, nums, dens, widths, widers, ends = {}

for p = 1, plan and #plan or 1, 5 do
  local k, a, more, flags = 1, 1, 0, 1
  if plan then
    local b, d
    k, b, a, d, flags = byte(plan, p, p + 4)
    k, a = k + 256 * b, a + 256 * d
  end
  if a ~= asked then
    asked, mode = a, byte(args[a], 2)
    n, iu, ic, nu, nc, fu, fc, wu, wc = struct.unpack('<I4dI4dI4dI4dI4', args[a], 3)
    _, width = math.frexp(wu)
    fu, wu = now + fu, now + wu
  end

  -- What is stored: the text, the arrival time, its denominator, the width and the wider time.
  local raw, u, c, d, stored, wider = raws[k], nil, 0, nil, 0, nil
  if raw then
    u, c, d, stored, wider = us[k], nums[k], dens[k], widths[k], widers[k]
  else
    raw = pcall('GET', keys[k])
    if raw then
      if not raw.err then
        stored, u = tonumber(sub(raw, -2)), tonumber(sub(raw, 1, -3))
        if stored and not u then
          local text, b, e = sub(raw, 1, -3), nil, nil
          u, b, e = string.match(text, '^(%d+) (%d+) (%d+)$')
          if not u then u, b, e, wider = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$') end
          if u then u, c, d, wider = tonumber(u), tonumber(b), tonumber(e), wider and tonumber(wider) end
        end
      end
      if not u or not stored then bad, u, stored, wider = true, now, 0, nil end
    end
  end

  -- The arrival time as it counts now, and whether a repair has cut it.
  local cut, keep = false, width
  if raw then
    if d and d ~= n then u, c = u + 1, 0 end
    if stored > 52 then stored = 52 end
    if wider then
      if width >= stored then
        if wider > u then u, c = wider, 0 end
        wider = nil
      end
      raw = format('%.0f %.0f %.0f00', u, c, n)
    end
    if u < now then
      u, c = now, 0
    elseif u > wu or (u == wu and c > wc) then
      if stored > width then wider = math.min(math.max(wider or 0, u + 1), now + 2 ^ stored) end
      u, c, cut = wu, wc, true
    end
    if wider then keep = stored end
  else
    u = now
  end
  local xu, xc = u + nu, c + nc
  if xc >= n then xu, xc = xu + 1, xc - n end
  local fits = xu < fu or (xu == fu and xc <= fc)
  if not fits and mode < 51 then denied = true end

  if flags % 2 == 0 then -- the batch goes on
    before = before + 1
    saved[before] = {k, flags, raw, mode, fits, cut, u, c, n, iu, ic, keep, wider}
  elseif bad then
    if not plan then return time[1] .. ' ' .. time[2] .. '\nstate' end
    lines = lines + 1
    out[lines] = 'state'
    before, denied, bad = 0, nil, nil
  else
    lines = lines + 1
    out[lines] = denied and '0' or '1'
    for i = before, 0, -1 do
      local charge = fits and not denied and (mode == 50 or mode == 53)
      if charge then
        if wider then wider = wider + iu + 1 end
        u, c = u + iu, c + ic
        if c >= n then u, c = u + 1, c - n end
      end
      if charge or (cut and mode ~= 48 and mode ~= 51) then
        -- %d takes 31 bits in Redis made for 32.
        local value, till, den = nil, u, n
        if wider and wider > u then
          value, till = format('%.0f %.0f %.0f %.0f%02d', u, c, n, wider, keep), wider
        elseif c > 0 then
          value, wider = format('%d%07d %.0f %.0f%02d', u / 1e7, u % 1e7, c, n, keep), nil
        else
          value, den, wider = format('%d%07d%02d', u / 1e7, u % 1e7, keep), nil, nil
        end
        local ms = math.ceil((till - now) / 1000) + margin
        if flags < 2 then
          if ms ~= last then last, px = ms, format('%d%03d', ms / 1000, ms % 1000) end
          call('SET', keys[k], value, 'PX', px)
        else
          if not us then us, nums, dens, widths, widers, ends = {}, {}, {}, {}, {}, {} end
          raws[k], us[k], nums[k], dens[k], widths[k], widers[k], ends[k] = value, u, c, den, keep, wider, ms
        end
      end
      if not plan then return time[1] .. ' ' .. time[2] .. (denied and '\n0\n' or '\n1\n') .. (raw or '') end
      out[lines + i + 1] = raw or ''
      if i > 0 then k, flags, raw, mode, fits, cut, u, c, n, iu, ic, keep, wider = unpack(saved[i], 1, 13) end
    end
    lines = lines + before + 1
    if before > 0 then asked, before = nil, 0 end
    denied = nil
  end
end

if ends then
  for k, ms in pairs(ends) do
    call('SET', keys[k], raws[k], 'PX', format('%d%03d', ms / 1000, ms % 1000))
  end
end
return time[1] .. ' ' .. time[2] .. '\n' .. table.concat(out, '\n')
