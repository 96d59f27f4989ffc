// Times go-gpuallocator's best-effort policy: a node and what is asked of it on standard input, one answer per line on
// standard output. It has to be built inside a copy of that module's source, whose link types are internal to it;
// benchmarks/gpu_sets.py does that.
package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
	"github.com/NVIDIA/go-gpuallocator/internal/links"
)

type ask struct {
	Available []int `json:"available"`
	Required  []int `json:"required"`
	Size      int   `json:"size"`
}

type input struct {
	Devices int `json:"devices"`
	// Per pair: the two GPUs, the score of their PCIe level (0: unknown) and their NVLinks.
	Links    [][4]int `json:"links"`
	Asks     []ask    `json:"asks"`
	BudgetMS int      `json:"budget_ms"`
}

type answer struct {
	// -1 is padding.
	Devices     []int `json:"devices"`
	Nanoseconds int64 `json:"nanoseconds"`
	Runs        int   `json:"runs"`
}

var pcie = map[int]links.P2PLinkType{
	10: links.P2PLinkCrossCPU,
	20: links.P2PLinkSameCPU,
	30: links.P2PLinkHostBridge,
	40: links.P2PLinkMultiSwitch,
	50: links.P2PLinkSingleSwitch,
	60: links.P2PLinkSameBoard,
}

func node(in input) []*gpuallocator.Device {
	devices := make([]*gpuallocator.Device, in.Devices)
	for i := range devices {
		devices[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
	}
	join := func(from, to int, kind links.P2PLinkType) {
		link := gpuallocator.P2PLink{GPU: devices[to], Type: kind}
		devices[from].Links[to] = append(devices[from].Links[to], link)
	}
	for _, link := range in.Links {
		one, other := link[0], link[1]
		if kind, known := pcie[link[2]]; known {
			join(one, other, kind)
			join(other, one, kind)
		}
		if link[3] > 0 {
			kind := links.SingleNVLINKLink + links.P2PLinkType(link[3]-1)
			join(one, other, kind)
			join(other, one, kind)
		}
	}
	return devices
}

func some(devices []*gpuallocator.Device, places []int) []*gpuallocator.Device {
	chosen := make([]*gpuallocator.Device, 0, len(places))
	for _, place := range places {
		chosen = append(chosen, devices[place])
	}
	return chosen
}

// The shortest of the runs that fit into the budget, of one at least.
func timed(devices []*gpuallocator.Device, a ask, budget time.Duration) answer {
	policy := gpuallocator.NewBestEffortPolicy()
	available, required := some(devices, a.Available), some(devices, a.Required)
	found := answer{Devices: []int{}}
	var chosen []*gpuallocator.Device
	for begin := time.Now(); found.Runs == 0 || time.Since(begin) < budget; found.Runs++ {
		start := time.Now()
		chosen = policy.Allocate(available, required, a.Size)
		took := time.Since(start).Nanoseconds()
		if found.Runs == 0 || took < found.Nanoseconds {
			found.Nanoseconds = took
		}
	}
	for _, device := range chosen {
		if device == nil {
			found.Devices = append(found.Devices, -1)
		} else {
			found.Devices = append(found.Devices, device.Index)
		}
	}
	return found
}

func main() {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	devices, out := node(in), json.NewEncoder(os.Stdout)
	for _, a := range in.Asks {
		if err := out.Encode(timed(devices, a, time.Duration(in.BudgetMS)*time.Millisecond)); err != nil {
			panic(err)
		}
	}
}
