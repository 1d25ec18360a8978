-- HAProxy asks Drossel before it forwards. HAProxy 2.6 or newer; docs/haproxy.md explains it.
-- haproxy.cfg says where Drossel is (backend drossel), how long its answer may take, and what happens
-- if it does not answer: closed answers 503; open forwards, uncounted.

local timeout = tonumber(os.getenv("DROSSEL_TIMEOUT") or 100) -- milliseconds
local down = os.getenv("DROSSEL_DOWN") or "closed"

-- Fields of the client that the policy reads (header.x-api-key), in lower case.
local passed = { "authorization", "x-api-key", "cookie", "origin", "access-control-request-method" }

-- HAProxy's client ends the process if it is to send more than a hundred fields, and a client can
-- send one of them so often.
local most = 64

-- Returns the lines of a field.
local function lines_of(fields, name)
	local lines = {}
	for i = 0, #(fields[name] or {}) do
		lines[#lines + 1] = fields[name] and fields[name][i]
	end
	return lines
end

local function too_many(txn)
	local fields, n = txn.http:req_get_headers(), 0
	for _, name in ipairs(passed) do
		n = n + #lines_of(fields, name)
	end
	return n > most
end

-- Returns the target as Drossel takes it: HAProxy has no path for OPTIONS *, and none for a URL that
-- ends with its host.
local function target_of(txn)
	local target = txn.f:pathq()
	if target and target ~= "" then
		return target
	end
	return txn.f:url() == "*" and "*" or "/"
end

local function ask(txn)
	local fields = txn.http:req_get_headers()
	local headers = {
		["x-original-method"] = { txn.f:method() },
		["x-original-uri"] = { target_of(txn) },
		["x-real-ip"] = { txn.f:src() }, -- policy: client_ip_from: x-real-ip
	}
	if fields["host"] then
		headers["x-original-host"] = { fields["host"][0] }
	end
	for _, name in ipairs(passed) do
		local lines = lines_of(fields, name)
		if #lines > 0 then
			headers[name] = lines
		end
	end
	local url = "http://" .. core.backends["drossel"].servers["drossel"]:get_addr() .. "/v1/check/haproxy"
	return core.httpclient():get({ url = url, headers = headers, timeout = timeout })
end

local function first(answer, name)
	local lines = answer.headers and answer.headers[name]
	return lines and lines[0]
end

-- Ends the request with an answer of its own.
local function finish(txn, status, headers, body)
	local reply = txn:reply({ status = status })
	for name, value in pairs(headers) do
		reply:add_header(name, value)
	end
	if txn.f:method() ~= "HEAD" then
		reply:set_body(body or "")
	end
	txn:done(reply)
end

local function decide(txn)
	if too_many(txn) then
		finish(txn, 431, { ["cache-control"] = "no-store" })
		return
	end
	local ok, answer = false, nil
	if txn.f:nbsrv("drossel") > 0 then
		ok, answer = pcall(ask, txn)
	end
	local status = ok and answer and first(answer, "drossel-status")
	if status == "200" then
		for _, name in ipairs({ "ratelimit", "ratelimit-policy" }) do
			local value = first(answer, name)
			if value then
				txn:set_var("txn.drossel_" .. name:gsub("-", "_"), value)
			end
		end
		return
	end
	if status then
		local headers = {}
		for _, name in ipairs({ "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }) do
			headers[name] = first(answer, name)
		end
		finish(txn, tonumber(status), headers, answer.body)
		return
	end
	-- 400 to 499 are Drossel's own: it has answered, and it was no yes. HAProxy's words for a
	-- server that does not answer are others.
	if ok and answer and answer.status and answer.status >= 400 and answer.status < 500 then
		finish(txn, 500, { ["cache-control"] = "no-store" })
		return
	end
	if down ~= "open" then
		finish(txn, 503, { ["retry-after"] = "1", ["cache-control"] = "no-store" })
	end
end

core.register_action("drossel", { "http-req" }, decide, 0)
