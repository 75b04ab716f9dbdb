// The admission policies before the code of Kubernetes that decides by them: the API server's own plugins and its strict
// decoder, without the server around them. Reads one case per line, writes one answer per line, both JSON.
//
//	{"decode": YAML}                      -> {"error": what the strict decoder says}
//	{"check": YAML of a policy}           -> {"error": what the type checker says, with the schema of pods}
//	{"mutate": bool, "validate": bool,    -> {"error": why it is denied, "pod": as it is then}
//	 "update": bool, "tenant": bool, "pod": {...}}
//
// Usage: main POLICY.yaml...
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// A cluster whose objects are in memory, with the OpenAPI documents that come with client-go.
type documents struct{ discovery.DiscoveryInterface }
type cluster struct{ kubernetes.Interface }

func (documents) OpenAPIV3() openapi.Client               { return newer{openapitest.NewEmbeddedFileClient()} }
func (c cluster) Discovery() discovery.DiscoveryInterface { return documents{c.Interface.Discovery()} }

// Those documents are older than what they come with. Of all that has been added to pods since, these tests need one field.
type newer struct{ openapi.Client }
type core struct{ openapi.GroupVersion }

func (n newer) Paths() (map[string]openapi.GroupVersion, error) {
	paths, err := n.Client.Paths()
	must(err)
	paths["api/v1"] = core{paths["api/v1"]}
	return paths, nil
}

func (c core) Schema(kind string) ([]byte, error) {
	text, err := c.GroupVersion.Schema(kind)
	must(err)
	var document map[string]any
	must(json.Unmarshal(text, &document))
	container := document["components"].(map[string]any)["schemas"].(map[string]any)["io.k8s.api.core.v1.Container"].(map[string]any)
	container["properties"].(map[string]any)["restartPolicy"] = map[string]any{"type": "string"}
	return json.Marshal(document)
}

// The schemas of the documents. A quantity is a string or a number there, and a string for the checker, as in the server.
func (documents) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	paths, err := documents{}.OpenAPIV3().Paths()
	must(err)
	text, err := paths["api/v1"].Schema(runtime.ContentTypeJSON)
	must(err)
	var document struct {
		Components struct{ Schemas map[string]*spec.Schema }
	}
	must(json.Unmarshal(text, &document))
	document.Components.Schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"] = spec.StringProperty()
	return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
		s, ok := document.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		return s, ok
	}, "io.k8s.api.core.v1."+gvk.Kind)
}

var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

type question struct {
	Decode, Check                    string
	Mutate, Validate, Update, Tenant bool
	Pod                              json.RawMessage
}
type answer struct {
	Error string      `json:"error"`
	Pod   *corev1.Pod `json:"pod,omitempty"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func decode(text []byte) (objects []runtime.Object, err error) {
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

type judge struct {
	mutates   *mutating.Plugin
	validates *validating.Plugin
	checks    validating.TypeChecker
}

func newJudge(objects []runtime.Object) judge {
	for name, labels := range map[string]map[string]string{"tenant": {"gpuarb.dev/tenant": ""}, "other": nil} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	// The server's defaults, without which its selectors match nothing.
	for _, object := range objects {
		switch p := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			matchAll(p.Spec.MatchConstraints)
		case *admissionv1.MutatingAdmissionPolicy:
			matchAll(p.Spec.MatchConstraints)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			matchAll(p.Spec.MatchResources)
		case *admissionv1.MutatingAdmissionPolicyBinding:
			matchAll(p.Spec.MatchResources)
		}
	}
	memory := fake.NewClientset(objects...)
	client := cluster{memory}
	factory := informers.NewSharedInformerFactory(memory, 0)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	initialize := initializer.New(client, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), factory, authorizerfactory.NewAlwaysAllowAuthorizer(),
		utilfeature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), context.Background().Done(), mapper)
	j := judge{checks: validating.TypeChecker{SchemaResolver: documents{}, RestMapper: mapper}}
	var err error
	j.mutates, err = mutating.NewPlugin(nil)
	must(err)
	j.validates, err = validating.NewPlugin(nil)
	must(err)
	stop := make(chan struct{})
	for _, plugin := range []interface {
		admission.InitializationValidator
		admission.Interface
	}{j.mutates, j.validates} {
		initialize.Initialize(plugin)
		plugin.(initializer.WantsDrainedNotification).SetDrainedNotification(stop)
		must(plugin.ValidateInitialization())
	}
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	for _, ready := range []func() bool{j.mutates.WaitForReady, j.validates.WaitForReady} {
		if !ready() {
			must(fmt.Errorf("a plugin does not become ready"))
		}
	}
	return j
}

func matchAll(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	if m.MatchPolicy == nil {
		equivalent := admissionv1.Equivalent
		m.MatchPolicy = &equivalent
	}
	every := admissionv1.AllScopes
	for i := range m.ResourceRules {
		if m.ResourceRules[i].Scope == nil {
			m.ResourceRules[i].Scope = &every
		}
	}
}

func (j judge) pod(q question) (a answer, err error) {
	a.Pod = &corev1.Pod{}
	if err = json.Unmarshal(q.Pod, a.Pod); err != nil {
		return
	}
	a.Pod.Namespace = "other"
	if q.Tenant {
		a.Pod.Namespace = "tenant"
	}
	var old runtime.Object
	var options runtime.Object = &metav1.CreateOptions{}
	operation := admission.Create
	if q.Update {
		old, options, operation = a.Pod.DeepCopy(), &metav1.UpdateOptions{}, admission.Update
	}
	attributes := admission.NewAttributesRecord(a.Pod, old, corev1.SchemeGroupVersion.WithKind("Pod"), a.Pod.Namespace, a.Pod.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "", operation, options, false, &user.DefaultInfo{Name: "tenant"})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	if q.Mutate {
		err = j.mutates.Admit(ctx, attributes, interfaces)
	}
	if err == nil && q.Validate {
		err = j.validates.Validate(ctx, attributes, interfaces)
	}
	return
}

func (j judge) check(text string) error {
	objects, err := decode([]byte(text))
	if err != nil {
		return err
	}
	for _, object := range objects {
		var spec admissionv1.ValidatingAdmissionPolicySpec
		switch p := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			spec = p.Spec
		case *admissionv1.MutatingAdmissionPolicy:
			// Kubernetes checks the types of validating policies alone: conditions are checked as theirs.
			spec.MatchConstraints, spec.Variables = p.Spec.MatchConstraints, p.Spec.Variables
			for _, c := range p.Spec.MatchConditions {
				spec.Validations = append(spec.Validations, admissionv1.Validation{Expression: c.Expression})
			}
		}
		// A variable is checked as an expression of its own: in others, one that is wrong has any type.
		for _, v := range spec.Variables {
			spec.Validations = append(spec.Validations, admissionv1.Validation{Expression: v.Expression})
		}
		policy := &admissionv1.ValidatingAdmissionPolicy{Spec: spec}
		var said []string
		for _, w := range j.checks.Check(policy) {
			said = append(said, w.FieldRef+": "+w.Warning)
		}
		if said != nil {
			return fmt.Errorf("%s", strings.Join(said, "; "))
		}
	}
	return nil
}

func main() {
	var policies []runtime.Object
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		must(err)
		objects, err := decode(text)
		must(err)
		policies = append(policies, objects...)
	}
	j := newJudge(policies)
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var q question
		var a answer
		must(json.Unmarshal(in.Bytes(), &q))
		var err error
		switch {
		case q.Decode != "":
			_, err = decode([]byte(q.Decode))
		case q.Check != "":
			err = j.check(q.Check)
		default:
			a, err = j.pod(q)
		}
		if err != nil {
			a.Error = err.Error()
		}
		must(out.Encode(a))
	}
	must(in.Err())
}
