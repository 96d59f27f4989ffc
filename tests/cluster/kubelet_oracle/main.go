// The managers of a real kubelet, without the kubelet: nodes and pods as JSON on the standard input, what became of
// each pod on the standard output. Every node is played several times, for kubelet goes through Go's maps, whose order
// is another one each time: different outcomes are all printed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type node struct {
	Machine         cadvisorapi.MachineInfo       `json:"machine"`
	TopologyPolicy  string                        `json:"topologyPolicy"`
	TopologyScope   string                        `json:"topologyScope"`
	TopologyOptions map[string]string             `json:"topologyOptions"`
	CPUPolicy       string                        `json:"cpuPolicy"`
	CPUOptions      map[string]string             `json:"cpuOptions"`
	ReservedCPUs    string                        `json:"reservedCpus"`
	Reserved        v1.ResourceList               `json:"reserved"`
	MemoryPolicy    string                        `json:"memoryPolicy"`
	ReservedMemory  map[int32]v1.ResourceList     `json:"reservedMemory"`
	Devices         map[string]map[string][]int64 `json:"devices"`
	Steps           []step                        `json:"steps"`
}

type step struct {
	Pod       v1.Pod   `json:"pod"`
	Gone      []string `json:"gone"`
	Unhealthy []string `json:"unhealthy"`
}

type hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

type outcome struct {
	Admitted bool                                      `json:"admitted"`
	Reason   string                                    `json:"reason"`
	Message  string                                    `json:"message"`
	Hints    map[string]hint                           `json:"hints"`
	Devices  map[string]map[string]map[string][]string `json:"devices"`
	CPUs     map[string]map[string]string              `json:"cpus"`
	Default  string                                    `json:"default"`
	Memory   memorystate.ContainerMemoryAssignments    `json:"memory"`
	Nodes    memorystate.NUMANodeMap                   `json:"nodes"`
}

type result struct {
	Error string      `json:"error"`
	Plays [][]outcome `json:"plays"`
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	var asked struct {
		Gates map[string]bool `json:"gates"`
		Runs  int             `json:"runs"`
		Nodes []node          `json:"nodes"`
	}
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	check(utilfeature.DefaultMutableFeatureGate.SetFromMap(asked.Gates))
	answer := json.NewEncoder(os.Stdout)
	for _, each := range asked.Nodes {
		var found result
		for run := 0; run < asked.Runs && found.Error == ""; run++ {
			played, err := play(each)
			if err != nil {
				found.Error = err.Error()
			} else if !contains(found.Plays, played) {
				found.Plays = append(found.Plays, played)
			}
		}
		check(answer.Encode(found))
	}
}

// play is one node's life. The error is why this kubelet would not have started.
func play(on node) ([]outcome, error) {
	logger := logr.Discard()
	ctx := klog.NewContext(context.Background(), logger)
	folder, err := os.MkdirTemp("", "purser-oracle-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()

	active := []*v1.Pod{}
	activePods := func() []*v1.Pod { return active }
	topology, err := topologymanager.NewManager(
		logger, on.Machine.Topology, on.TopologyPolicy, on.TopologyScope, on.TopologyOptions)
	if err != nil {
		return nil, err
	}
	reservedCPUs, err := cpuset.Parse(on.ReservedCPUs)
	check(err)
	devices, err := newDeviceManager(logger, filepath.Join(folder, "kubelet.sock"), on.Machine.Topology, topology)
	check(err)
	cpus, err := cpumanager.NewManager(
		logger, on.CPUPolicy, on.CPUOptions, time.Hour, &on.Machine, reservedCPUs, on.Reserved, folder, topology)
	if err != nil {
		return nil, err
	}
	memory, err := memorymanager.NewManager(
		logger, on.MemoryPolicy, &on.Machine, on.Reserved, reservations(on.ReservedMemory), folder, topology)
	if err != nil {
		return nil, err
	}
	stub := &ready{}
	check(devices.Start(logger, activePods, stub, containermap.NewContainerMap(), sets.New[string]()))
	defer func() { check(devices.Stop(logger)) }()
	for name := range on.Devices {
		check(devices.PluginConnected(ctx, name, plugin{resource: name}))
	}
	reconciled := make(chan struct{})
	once := sync.OnceFunc(func() { close(reconciled) })
	observed := func() []*v1.Pod { defer once(); return active }
	if err := cpus.Start(ctx, observed, stub, stub, stub, containermap.NewContainerMap()); err != nil {
		return nil, err
	}
	if on.CPUPolicy == string(cpumanager.PolicyStatic) {
		<-reconciled // it reconciles once when it starts, beside us
	}
	if err := memory.Start(ctx, activePods, stub, stub, stub, containermap.NewContainerMap()); err != nil {
		return nil, err
	}
	topology.AddHintProvider(logger, devices)
	topology.AddHintProvider(logger, cpus)
	topology.AddHintProvider(logger, memory)

	var outcomes []outcome
	for place := range on.Steps {
		each := &on.Steps[place]
		for name, nodes := range on.Devices {
			response := &pluginapi.ListAndWatchResponse{Devices: listed(nodes, each.Unhealthy)}
			devices.PluginListAndWatchReceiver(logger, name, response)
		}
		active = append(without(active, each.Gone), &each.Pod)
		result := topology.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: &each.Pod, Operation: lifecycle.AddOperation})
		found := outcome{
			Admitted: result.Admit, Reason: result.Reason, Message: result.Message, Hints: map[string]hint{},
			Devices: map[string]map[string]map[string][]string{}, CPUs: map[string]map[string]string{},
			Default: cpus.State().GetDefaultCPUSet().String(),
			Memory:  memory.State().GetMemoryAssignments(), Nodes: memory.State().GetMachineState(),
		}
		for _, pod := range on.Steps[:place+1] {
			found.Devices[string(pod.Pod.UID)] = map[string]map[string][]string{}
			for _, container := range containersOf(&pod.Pod) {
				held := map[string][]string{}
				for name, ids := range devices.GetDevices(string(pod.Pod.UID), container.Name) {
					held[name] = sets.List(sets.KeySet(ids))
				}
				found.Devices[string(pod.Pod.UID)][container.Name] = held
			}
		}
		for _, container := range containersOf(&each.Pod) {
			if merged := topology.GetAffinity(logger, string(each.Pod.UID), container.Name); merged.NUMANodeAffinity != nil {
				found.Hints[container.Name] = hint{merged.NUMANodeAffinity.GetBits(), merged.Preferred}
			}
		}
		for pod, containers := range cpus.State().GetCPUAssignments() {
			found.CPUs[pod] = map[string]string{}
			for container, set := range containers {
				found.CPUs[pod][container] = set.String()
			}
		}
		outcomes = append(outcomes, found)
		if !result.Admit {
			active = without(active, []string{string(each.Pod.UID)})
		}
	}
	return outcomes, nil
}

func listed(devices map[string][]int64, unhealthy []string) []*pluginapi.Device {
	var found []*pluginapi.Device
	for id, nodes := range devices {
		device := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
		if nodes != nil {
			device.Topology = &pluginapi.TopologyInfo{}
			for _, numa := range nodes {
				device.Topology.Nodes = append(device.Topology.Nodes, &pluginapi.NUMANode{ID: numa})
			}
		}
		if slices.Contains(unhealthy, id) {
			device.Health = pluginapi.Unhealthy
		}
		found = append(found, device)
	}
	return found
}

func containersOf(pod *v1.Pod) []v1.Container {
	return append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
}

func reservations(reserved map[int32]v1.ResourceList) []kubeletconfig.MemoryReservation {
	var found []kubeletconfig.MemoryReservation
	for numa, limits := range reserved {
		found = append(found, kubeletconfig.MemoryReservation{NumaNode: numa, Limits: limits})
	}
	return found
}

func without(pods []*v1.Pod, uids []string) []*v1.Pod {
	var kept []*v1.Pod
	for _, pod := range pods {
		if !slices.Contains(uids, string(pod.UID)) {
			kept = append(kept, pod)
		}
	}
	return kept
}

func contains(all [][]outcome, one []outcome) bool {
	for _, each := range all {
		if reflect.DeepEqual(each, one) {
			return true
		}
	}
	return false
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ready is what a kubelet has around its managers: sources that are ready, and neither statuses nor a runtime.
type ready struct{}

func (*ready) AddSource(string) {}
func (*ready) AllReady() bool   { return true }
func (*ready) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	return v1.PodStatus{}, false
}
func (*ready) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// plugin prefers what it must include, and then the first devices by name.
type plugin struct{ resource string }

func (p plugin) API() pluginapi.DevicePluginClient { return p }
func (p plugin) Resource() string                  { return p.resource }
func (p plugin) SocketPath() string                { return p.resource }

func (plugin) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty, ...grpc.CallOption,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (plugin) ListAndWatch(
	context.Context, *pluginapi.Empty, ...grpc.CallOption,
) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	return nil, errors.New("not called: lists are handed in")
}

func (plugin) GetPreferredAllocation(
	_ context.Context, asked *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption,
) (*pluginapi.PreferredAllocationResponse, error) {
	answer := &pluginapi.PreferredAllocationResponse{}
	for _, each := range asked.ContainerRequests {
		rest := sets.List(sets.New(each.AvailableDeviceIDs...).Delete(each.MustIncludeDeviceIDs...))
		preferred := append(append([]string{}, each.MustIncludeDeviceIDs...), rest...)[:each.AllocationSize]
		answer.ContainerResponses = append(
			answer.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: preferred})
	}
	return answer, nil
}

func (plugin) Allocate(
	_ context.Context, asked *pluginapi.AllocateRequest, _ ...grpc.CallOption,
) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return answer, nil
}

func (plugin) PreStartContainer(
	context.Context, *pluginapi.PreStartContainerRequest, ...grpc.CallOption,
) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

var _ v1beta1.DevicePlugin = plugin{}

// newDeviceManager takes a folder, which the exported one does not: its folder belongs to this machine's kubelet.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(
	logger klog.Logger, socketPath string, topology []cadvisorapi.Node, affinity topologymanager.Store,
) (*devicemanager.ManagerImpl, error)
