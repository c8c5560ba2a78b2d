-- For wrk: every second request is evil. Each reply tells by itself which it answers: one that ran says so with a number that
-- only a shell works out, a refused one names the rule. What is neither is counted as wrong.
local threads = {}

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

function init()
    sent, fine, refused, wrong, example = 0, 0, 0, 0, ""
end

local function body(command)
    return '{"projectId":"wrk' .. number .. '","commands":["' .. command .. '"]}'
end

function request()
    sent = sent + 1
    local command = sent % 2 == 0 and "shutdown -h now; echo evil-$((40+2))" or "echo fine-$((40+2))"
    return wrk.format("POST", "/execute", nil, body(command))
end

function response(status, headers, text)
    if status == 200 and text:find("fine-42", 1, true) then
        fine = fine + 1
    elseif status == 400 and text:find('"rule":"shutdown"', 1, true) then
        refused = refused + 1
    else
        wrong, example = wrong + 1, status .. " " .. text
    end
end

function done(summary)
    local total = { fine = 0, refused = 0, wrong = 0 }
    local example = ""
    for _, thread in ipairs(threads) do
        for key in pairs(total) do total[key] = total[key] + thread:get(key) end
        if thread:get("example") ~= "" then example = thread:get("example") end
    end
    local e = summary.errors
    io.write(string.format('COUNTS fine=%d refused=%d wrong=%d lost=%d\n', total.fine, total.refused, total.wrong,
        e.connect + e.read + e.write + e.timeout))
    io.write("EXAMPLE " .. example .. "\n")
end
