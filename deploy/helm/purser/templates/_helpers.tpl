{{- define "purser.labels" -}}
app.kubernetes.io/name: purser
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "purser.selector" -}}
app.kubernetes.io/name: purser
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "purser.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "purser.kubeSchedulerImage" -}}
{{- with .Values.scheduler.kubeScheduler }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ include "purser.kubernetesVersion" $ }}{{ end }}
{{- end }}
{{- end }}

{{/* The agents of the chart's own, which the operator brings otherwise. */}}
{{- define "purser.hasAgent" -}}
{{- if and .Values.agent.enabled (not .Values.operator.enabled) }}yes{{ end }}
{{- end }}

{{/* What agents may write on their nodes: by the chart's values, and by its ClusterPolicy where the operator brings them. */}}
{{- define "purser.agentsTaint" -}}
{{ or .Values.agent.taintNodes (and .Values.operator.enabled (dig "devicePlugin" "taintNodes" false .Values.clusterPolicy.spec)) }}
{{- end }}

{{- define "purser.agentsCordon" -}}
{{ or .Values.agent.cordonNodes (and .Values.operator.enabled (dig "devicePlugin" "cordonNodes" false .Values.clusterPolicy.spec)) }}
{{- end }}

{{- define "purser.agentsLabel" -}}
{{- $policys := dig "devicePlugin" "featureLabels" "off" .Values.clusterPolicy.spec -}}
{{ or (eq .Values.agent.featureLabels "node-labels") (and .Values.operator.enabled (eq $policys "node-labels")) }}
{{- end }}

{{/* Where a component's pods may go, of its section of the values. */}}
{{- define "purser.placing" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the Pod Security Standard `restricted` wants of a pod, and of its containers. */}}
{{- define "purser.restrictedPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "purser.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The version of kube-scheduler to run, and with it the cluster's: as given, else the version that the API server reports to Helm. */}}
{{- define "purser.kubernetesVersion" -}}
{{ .Values.scheduler.kubeScheduler.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}

{{- define "purser.kubernetesMinor" -}}
{{ regexReplaceAll "^v?1\\.([0-9]+).*$" (include "purser.kubernetesVersion" .) "${1}" }}
{{- end }}

{{/* The scheduler configuration's API version that this kube-scheduler reads. */}}
{{- define "purser.schedulerConfigVersion" -}}
{{- $minor := include "purser.kubernetesMinor" . | int -}}
{{- if ge $minor 25 -}}v1
{{- else if ge $minor 23 -}}v1beta3
{{- else if ge $minor 22 -}}v1beta2
{{- else -}}v1beta1
{{- end -}}
{{- end }}

{{/* Of the operator, and of the jobs that do what it cannot: all but the account. */}}
{{- define "purser.operatorPod" -}}
priorityClassName: {{ .Values.operator.priorityClassName | quote }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "purser.placing" .Values.operator }}
{{ include "purser.restrictedPod" . }}
{{- end }}

{{/* Before anything else of the chart, in the order of the given weights; gone again once it is done. */}}
{{- define "purser.defineHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* After all else of the chart has gone. */}}
{{- define "purser.cleanUpHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "purser.operatorContainer" -}}
image: {{ include "purser.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "purser.restrictedContainer" . }}
{{- end }}

{{/* How operands that run Purser's image get it: as the chart says it for its own pods. NVIDIA's device plugin is none of them. And which names of GPUs agents
may list: those that kube-scheduler asks Purser about. */}}
{{- define "purser.pulling" -}}
{{- $secrets := list }}
{{- range .Values.imagePullSecrets }}{{ $secrets = append $secrets .name }}{{ end }}
{{- $own := list "discovery" "migManager" }}
{{- if ne (dig "devicePlugin" "flavor" "purser" .Values.clusterPolicy.spec) "nvidia" }}{{ $own = append $own "devicePlugin" }}{{ end }}
{{- range $section := $own }}
{{ $section }}:
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  {{- with $secrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $section "devicePlugin" }}{{- with $.Values.scheduler.kubeScheduler.managedResources }}
  managedResources: {{- toYaml . | nindent 4 }}
  {{- end }}{{- end }}
{{- end }}
{{- end }}

{{/* The volume with the CA of the webhook's clients; empty where everybody is answered. */}}
{{- define "purser.webhookClientCA" -}}
{{- with .Values.webhook.clientCA }}
{{- if and .configMap .secret }}{{ fail "webhook.clientCA: give a configMap or a secret, not both" }}{{ end }}
{{- if .configMap }}configMap: {name: {{ .configMap | quote }}}{{ else if .secret }}secret: {secretName: {{ .secret | quote }}}
{{- else if .names }}{{ fail "webhook.clientCA.names: give the CA of these clients as well" }}{{ end }}
{{- end }}
{{- end }}

{{/* The Secret with the certificate that somebody else makes; empty where the scheduler does. */}}
{{- define "purser.certificateSecret" -}}
{{- with .Values.webhook.certificate }}
{{- if and .secret .issuerRef }}{{ fail "webhook.certificate: give a secret or an issuerRef, not both" }}{{ end }}
{{- .secret | default (ternary "purser-webhook-tls" "" (not (empty .issuerRef))) }}
{{- end }}
{{- end }}

{{/* Who may read metrics, on that port. */}}
{{- define "purser.metricsIngress" -}}
- from:
    - namespaceSelector: {{- toYaml .root.Values.networkPolicy.metricsNamespaces | nindent 8 }}
  ports:
    - {protocol: TCP, port: {{ .port }}}
{{- end }}
