-- received_too_often(dead, rc, history) -> true if a message, delivered now for the rc-th time, is over the limit of its
-- dead-letter queue *dead*. Deliveries that were returned before work on them began do not count.
local function received_too_often(dead, rc, history)
  return rc - (history and history.excused or 0) > dead.limit
end
