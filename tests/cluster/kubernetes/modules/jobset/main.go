// Command jobset runs JobSet's controllers, without the webhooks of its own main package: these are written for a
// controller-runtime that does not compile on the packages of the pinned Kubernetes.
package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
)

func main() {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	noMetrics := metricsserver.Options{BindAddress: "0"}
	// The file that KUBECONFIG names.
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Scheme: scheme, Metrics: noMetrics})
	utilruntime.Must(err)
	ctx := ctrl.SetupSignalHandler()
	utilruntime.Must(controllers.SetupJobSetIndexes(ctx, manager.GetFieldIndexer()))
	utilruntime.Must(controllers.SetupPodIndexes(ctx, manager.GetFieldIndexer()))
	events := manager.GetEventRecorderFor("jobset")
	utilruntime.Must(controllers.NewJobSetReconciler(manager.GetClient(), scheme, events).SetupWithManager(manager))
	utilruntime.Must(controllers.NewPodReconciler(manager.GetClient(), scheme, events).SetupWithManager(manager))
	utilruntime.Must(manager.Start(ctx))
}
