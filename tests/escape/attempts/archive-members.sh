# class: files
# promise: archive members with absolute names and .. stay inside (the runner looks)
# refused: nothing
# control: host
# trace: $HOST_TARGET
mkdir -p /tmp/a && cd /tmp/a && echo owned > payload
tar -cPf x.tar --transform "s,payload,$HOST_TARGET," payload
tar -cPf y.tar --transform "s,payload,../../../../../../..$HOST_TARGET," payload
mkdir -p "$(dirname "$HOST_TARGET")"; tar -xPf x.tar; tar -xPf y.tar; exit 1
