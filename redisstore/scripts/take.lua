-- Decides batches of checks of any kind: see bucket.lua, whose batches are decided
-- the same way. The kinds are b token bucket, f fixed window, g fixed window from the
-- first charge, c calendar, s sliding counter, l sliding log, n in flight. A log is
-- reported as "sum newest fits next", what is in flight as "sum fits last": sums and
-- times after the decision. fits is when the check fits, next when one unit more than
-- is left does, 0 where that is now or nothing is used, -1 for never.
local look, keep, report = {}, {}, {}
local view, fits, repaired, raws = {}, {}, {}, {} -- by check

function look.b(i, key, arg)
  local n, iu, ic, nu, nc, fu, fc, wu, wc = numbers('<I4dI4dI4dI4dI4', arg, 3)
  local _, width = math.frexp(wu)
  local u, c, stored, wider, _, raw = arrival(key, n, width)
  local cut = false
  if not u or u < now then
    u, c = now, 0
  else
    local latest = now + wu
    if u > latest or (u == latest and c > wc) then
      wider = beyond(u, stored, width, wider)
      u, c, cut = latest, wc, true
    end
  end
  if wider then width = stored end
  view[i], repaired[i], raws[i] = {u, c, n, iu, ic, width, wider}, cut, raw
  local xu, xc = u + nu, c + nc
  if xc >= n then xu, xc = xu + 1, xc - n end
  local limit = now + fu
  return xu < limit or (xu == limit and xc <= fc)
end

function keep.b(i, key, charge)
  local u, c, n, iu, ic, width, wider = unpack(view[i], 1, 7)
  if charge then
    if wider then wider = wider + iu + 1 end
    u, c = u + iu, c + ic
    if c >= n then u, c = u + 1, c - n end
  end
  setArrival(key, u, c, n, width, wider)
end

local function keepWindow(i, key, charge)
  local start, count, ends, cost = unpack(view[i])
  if charge then count = count + cost end
  write(key, format('%.0f %.0f', start, count), ends)
end

local function lookWindow(seen)
  return function(i, key, arg)
    local cost, need, limit, a, b, c, d, e = numbers('<dddddddd', arg, 3)
    local start, count, _, raw = counts(key, ONE)
    local fixed, ends
    start, count, fixed, ends = seen(start, count, a, b, c, d, e)
    view[i], repaired[i], raws[i] = {start, count, ends, cost}, fixed, raw
    return count + need <= limit
  end
end

look.f, keep.f = lookWindow(fixedView), keepWindow
look.g, keep.g = lookWindow(firstView), keepWindow
look.c, keep.c = lookWindow(calendarView), keepWindow

function look.s(i, key, arg)
  local cost, need, limit, period = numbers('<dddd', arg, 3)
  local start, cur, prev, raw = counts(key, TWO)
  local fixed
  start, cur, prev, fixed = counterView(start, cur, prev, period)
  local used = cur
  if prev > 0 then used = used + share(prev, period - max(0, now - start), period) end
  view[i], repaired[i], raws[i] = {start, cur, prev, cost, period}, fixed, raw
  return used + need <= limit
end

function keep.s(i, key, charge)
  local start, cur, prev, cost, period = unpack(view[i])
  if charge then cur = cur + cost end
  write(key, format('%.0f %.0f %.0f', start, cur, prev), start + 2 * period)
end

function look.l(i, key, arg)
  local cost, need, limit, period = numbers('<dddd', arg, 3)
  local log = openLog(key, period)
  dropLog(log)
  log.limit, log.cost, log.fits = limit, cost, 0
  view[i], repaired[i] = log, log.repaired
  if log.sum + need <= limit then return true end
  if need > limit then
    log.fits = -1
  else
    log.fits = freeAt(log, log.sum + need - limit) + period
  end
  return false
end

function keep.l(i, key, charge)
  writeLog(view[i], charge and view[i].cost or 0)
end

function report.l(i)
  local log, free = view[i], 0
  if log.sum > 0 then free = freeAt(log, max(1, log.sum + 1 - log.limit)) + log.period end
  return format('%.0f %.0f %.0f %.0f', log.sum, log.newest or 0, log.fits, free)
end

function look.n(i, key, arg)
  local cost, need, limit, period = numbers('<dddd', arg, 3)
  local h = openHolders(key, period)
  h.id, h.cost, h.fits = string.sub(arg, 35), cost, 0
  view[i] = h
  local ends = h.stored and call('ZSCORE', key, h.id)
  h.holds = ends and tonumber(ends) > now and ends
  -- What has ended goes with every take that can fit, whatever the answer.
  repaired[i] = h.stored and (h.holds or need <= limit)
  if h.holds or h.sum + need <= limit then return true end
  h.fits = -1
  if need <= limit then
    local left, from = h.sum + need - limit, 0
    repeat
      local next = call('ZRANGEBYSCORE', key, '(' .. format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', from, 1)
      if #next == 0 then
        bad = 'state'
        return false
      end
      left, from = left - holderCost(h, next[1]), from + 1
      h.fits = min(h.latest, tonumber(next[2]))
    until left <= 0
  end
  return false
end

function keep.n(i, key, charge)
  local h = view[i]
  purge(h)
  if charge then
    if not h.holds then
      h.sum = h.sum + h.cost
      if h.cost > 1 then call('ZADD', key, -h.cost, 'c' .. h.id) end
    end
    extend(h, h.id, h.holds)
  end
  closeHolders(h)
end

function report.n(i)
  local h = view[i]
  return format('%.0f %.0f %.0f', h.sum, h.fits, h.sum > 0 and lastEnd(h) or 0)
end

local names = {}
for name in pairs(look) do names[byte(name)] = name end

local out = {time[1] .. ' ' .. time[2]}
local asked, whose = {}, {} -- by check
local first, i, allowed = 1, 0, true
for p = 1, #plan, 5 do
  local last
  i = i + 1
  whose[i], asked[i], last = planned(p)
  local kind, mode = byte(asked[i], 1, 2)
  raws[i], repaired[i] = nil, false
  fits[i] = look[names[kind]](i, whose[i], asked[i])
  if not fits[i] and mode < 51 then allowed = false end

  if last and bad then
    out[#out + 1] = bad
  elseif last then
    out[#out + 1] = allowed and '1' or '0'
    for j = first, i do
      kind, mode = byte(asked[j], 1, 2)
      kind = names[kind]
      local charge = allowed and fits[j] and (mode == 50 or mode == 53)
      if charge or (repaired[j] and mode ~= 48 and mode ~= 51) then keep[kind](j, whose[j], charge) end
      out[#out + 1] = report[kind] and report[kind](j) or raws[j] or ''
    end
  end
  if last then first, allowed, bad = i + 1, true, nil end
end
return finish(out)
