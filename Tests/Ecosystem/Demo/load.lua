-- What visitors ask for: few pictures often and many seldom, sessions, and a share of reports, which is the first argument after "--".
local reports = 0

init = function(arguments) reports = tonumber(arguments[1]) or 0 end

request = function()
  local dice = math.random()
  if dice < reports then return wrk.format("GET", "/report/" .. math.random(0, 100000)) end
  if dice < reports + (1 - reports) / 5 then return wrk.format("GET", "/session/" .. math.random(0, 4000)) end
  return wrk.format("GET", "/picture/" .. math.floor(20000 * math.random() ^ 3))
end
